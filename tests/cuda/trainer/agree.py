#!/usr/bin/env python3
"""agree.py -- rubato-train on the processor and on a device: the same losses.

usage: agree.py RUBATO_TRAIN losses [--only NAME]

losses: each model and some update rules, twice; every step's loss on the device is the processor's
within the tolerance that stands in the table below, relative to 1 plus the loss. Exit status: 0, 1
where something differs or fails, 77 where there is no device. Needs no packages.
"""

import json
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

NO_DEVICE = ("cannot load libcuda", "no CUDA-capable device", "not in this build")
SECONDS_MAX = 300

GPT = "--model gpt --data text:text --batch 4 --context 32 --width 32 --heads 4 --layers 2"
MLP = "--model mlp --hidden 32 --data npy:images"
# What, ranks, tolerance, words.
LOSSES = [
    ("logistic", 2, 1e-5, "--steps 50 --model logistic --data npy:images --momentum 0.9"),
    ("mlp", 2, 1e-5, f"--steps 50 {MLP} --bucket 4096"),
    ("hyperplane", 2, 1e-5, "--steps 50 --model hyperplane --data synthetic:400x24 --lr 0.02"),
    ("cnn", 1, 1e-4, "--steps 50 --model cnn --data npy:images --batch 16 --lr 0.02"),
    # After more steps rounding decides which way it goes, on processors as well (docs/gpu.md).
    ("resnet20", 1, 1e-3, "--steps 3 --model resnet20 --data npy:images --batch 16 --lr 0.01"),
    ("lstm", 1, 1e-4, "--steps 50 --model lstm --hidden 32 --data text:text --batch 8 --lr 0.5 "
                      "--clip 1"),
    ("gpt", 1, 1e-4, f"--steps 50 {GPT} --optimizer adam --lr 0.003"),
    ("gpt-tf32", 1, 1e-2, f"--steps 20 {GPT} --precision tf32"),
    ("gpt-bfloat16", 1, 1e-1, f"--steps 20 {GPT} --precision bfloat16"),
    ("laga", 4, 1e-5, f"--steps 20 {MLP} --algorithm laga --momentum 0.9 --lag-comp lookahead"),
    ("kavg", 4, 1e-5, f"--steps 20 {MLP} --algorithm kavg --k 3 --outer block"),
    ("hier", 4, 1e-5, f"--steps 20 {MLP} --algorithm hier --k1 2 --k2 6 --group 2"),
    ("adpsgd", 4, 1e-5, f"--steps 20 {MLP} --algorithm adpsgd"),
    ("local", 4, 1e-5, f"--steps 20 {MLP} --algorithm local --k 4 --outer nesterov"),
]


def array_write(path, dtype, shape, data):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust((10 + len(head)) // 64 * 64 + 64 - 11) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def images_write(folder, rows, shape):
    """Noise about a centre of each of ten classes."""
    random.seed(11)
    size = 1
    for extent in shape:
        size *= extent
    centres = [[random.random() - 0.5 for _ in range(size)] for _ in range(10)]
    classes = [random.randrange(10) for _ in range(rows)]
    noise = [2 * random.random() - 1 for _ in range(10007)]
    folder.mkdir()
    values = bytearray()
    for row, of in enumerate(classes):
        values += struct.pack(f"<{size}f", *(centre + noise[(row * 7919 + k) % len(noise)]
                                             for k, centre in enumerate(centres[of])))
    for ending in ("", "_test"):
        array_write(folder / f"x{ending}.npy", "<f4", (rows, *shape), bytes(values))
        array_write(folder / f"y{ending}.npy", "<i4", (rows,), struct.pack(f"<{rows}i", *classes))


def text_write(path, lines):
    path.write_text("".join(f"{i} and {i % 7} are {i + i % 7}\n" for i in range(lines)))


def train(program, folder, words, ranks, device, report_every=1):
    """The folder of the run's files, or ends the program."""
    out = folder / device.replace(":", "")
    command = [program, "-n", str(ranks), *words.split(), "-q", "--report-every", str(report_every),
               "--final-rows", "0", "--no-report", "--out", str(out), "--device", device]
    if device == "cpu" and "--precision" in command:  # It has one.
        at = command.index("--precision")
        del command[at:at + 2]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False,
                          timeout=SECONDS_MAX)
    if done.returncode == 0:
        return out
    print((done.stderr or done.stdout).strip())
    sys.exit(77 if any(text in done.stderr for text in NO_DEVICE) else 1)


def metrics_of(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def losses_of(out):
    return [line["loss"] for line in metrics_of(out)]


def losses(program, folder, only):
    worst = 0
    for name, ranks, tolerance, words in LOSSES:
        if only not in (None, name):
            continue
        there = losses_of(train(program, folder, words, ranks, "cuda"))
        here = losses_of(train(program, folder, words, ranks, "cpu"))
        apart = [abs(a - b) / (1 + abs(a)) for a, b in zip(here, there)]
        good = len(here) == len(there) >= 3 and max(apart) <= tolerance
        worst = max(worst, not good)
        print(f"{'same' if good else 'DIFFERS':8} {name:14} {ranks} ranks, {len(there)} losses: at "
              f"most {max(apart):.1e} apart, {tolerance:.0e} may be", flush=True)
    return worst


def main():
    words = sys.argv[1:]
    only = words.pop() if len(words) == 4 and words[2] == "--only" else None
    if len(words) not in (2, 3) or words[1] != "losses":
        print(__doc__.strip())
        return 2
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        text_write(path / "text", 400)
        images_write(path / "images", 256, (8, 8))
        return int(losses(str(pathlib.Path(words[0]).resolve()), path, only))


if __name__ == "__main__":
    sys.exit(main())
