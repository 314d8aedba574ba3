#!/usr/bin/env python3
"""agree.py -- rubato-train on the processor and on a device: the same losses.

usage: agree.py RUBATO_TRAIN losses|algorithms|overlap [--only NAME] [--small] [--keep DIR]

losses: each model, twice; every step's loss on the device is the processor's within the tolerance
that stands in the table below, relative to 1 plus the loss.

algorithms: every algorithm of rubato-train, four ranks on one device, which are processes. Where
it takes one path only, losses or the last parameters are the processor's. Where one rank comes
late and the path depends on that, the run learns, and tools/replay accepts its ledger; not one
with another learning rate. That the rank was late is asked of the ledger. Replays need NumPy;
without it that is said.

overlap: laga with gpt on two ranks that share a device. From its trace: how much of the time that
reductions are in flight ranks were not blocked, and in how many rounds they compute meanwhile, 0.9
of which must. From the time of a step: how much of what communication costs under sync in one piece
laga saves, where what computation costs is known from a run of local that never averages. --keep:
trace.json and the page of the run with laga go there. --small: a small model, as on the driver
without a device.

Exit status: 0, 1 where something differs or fails, 77 where there is no device.
"""

import argparse
import json
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile

REPLAY = pathlib.Path(__file__).resolve().parents[3] / "tools" / "replay"
NO_DEVICE = ("cannot load libcuda", "no CUDA-capable device", "not in this build")
SECONDS_MAX = 300

GPT = "--model gpt --data text:text --batch 4 --context 32 --width 32 --heads 4 --layers 2"
BIG = "--model gpt --data text:text --batch 16 --context 256 --width 384 --heads 6 --layers 6"
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
]
# They take one path only: as above.
ONE_PATH = [
    ("sync", 4, 1e-5, f"--steps 20 {MLP} --algorithm sync --momentum 0.9 --bucket 1024"),
    ("laga", 4, 1e-5, f"--steps 20 {MLP} --algorithm laga --momentum 0.9 --lag-comp lookahead"),
    ("kavg", 4, 1e-5, f"--steps 20 {MLP} --algorithm kavg --k 3 --outer block"),
    ("hier", 4, 1e-4, f"--steps 20 {MLP} --algorithm hier --k1 2 --k2 6 --group 2 --wire bf16"),
    ("periodic", 4, 1e-5, f"--steps 20 {MLP} --algorithm periodic --schedule post-local"),
    ("adpsgd", 4, 1e-5, f"--steps 20 {MLP} --algorithm adpsgd"),
    ("local", 4, 1e-5, f"--steps 20 {MLP} --algorithm local --k 4 --outer nesterov"),
    ("local-pull", 4, 1e-5, f"--steps 20 {MLP} --algorithm local --k 4 --pull 0.5"),
]
# Rounds that wait for all: one path, but what is reported on the way depends on time. Of
# parameters the tolerance is absolute.
ONE_END = [
    ("eager-all", 4, 1e-4, f"--steps 20 {MLP} --algorithm eager --policy quorum:4 --collect own"),
]
# What it does, ranks, which updates in its ledger show that rank 3 was late, words.
LATE = [
    ("eager", 4, "without rank 3", f"--steps 40 {MLP} --algorithm eager --policy quorum:2 "
                                   "--momentum 0.5 --delay rank:3:10ms"),
    ("laga-until-done", 4, "with less of rank 3", f"--steps 60 {MLP} --algorithm laga --lr 0.1 "
                                               "--accumulate until-done --delay rank:3:2ms"),
]
RATE = re.compile('"rate":')


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


def train(program, folder, words, ranks, device, report_every=1, page=False):
    """The folder of the run's files, or ends the program."""
    out = folder / device.replace(":", "")
    command = [program, "-n", str(ranks), *words.split(), "-q", "--report-every", str(report_every),
               "--final-rows", "0", "--out", str(out), "--device", device]
    command += [] if page else ["--no-report"]
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


def losses_agree(program, folder, table, only):
    worst = 0
    for name, ranks, tolerance, words in table:
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


def losses(program, folder, only):
    return losses_agree(program, folder, LOSSES, only)


def floats_of(path):
    """All numbers of an array of float32."""
    data = path.read_bytes()
    begin = 10 + struct.unpack("<H", data[8:10])[0]
    return struct.unpack(f"<{(len(data) - begin) // 4}f", data[begin:])


def ends_agree(program, folder, only):
    worst = 0
    for name, ranks, tolerance, words in ONE_END:
        if only not in (None, name):
            continue
        ends = [floats_of(train(program, folder, words, ranks, device) / "final.npy")
                for device in ("cuda", "cpu")]
        first = floats_of(folder / "cpu" / "initial.npy")
        apart = max(abs(a - b) for a, b in zip(*ends))
        moved = max(abs(a - b) for a, b in zip(first, ends[1]))
        good = len(ends[0]) == len(ends[1]) and apart <= tolerance < moved / 100
        worst = max(worst, not good)
        said = "same" if good else "DIFFERS"
        print(f"{said:8} {name:14} {ranks} ranks, {len(first)} parameters: at most "
              f"{apart:.1e} apart, {tolerance:.0e} may be; they moved by up to {moved:.1e}",
              flush=True)
    return worst


def lateness(out, kind):
    """In how many updates rank 3 is missing, or another rank has more gradients than it."""
    count = 0
    for line in (out / "ledger.jsonl").read_text().splitlines():
        shares = {rank: last - first + 1
                  for rank, first, last in json.loads(line).get("contributions", [])}
        if shares and kind == "without rank 3":
            count += 3 not in shares
        elif shares:
            count += max(shares.values()) > shares.get(3, 0)
    return count


def replay(folder, out):
    return subprocess.run([sys.executable, "-B", REPLAY, out, "--switches", "200"], cwd=folder,
                          capture_output=True, text=True, check=False, timeout=SECONDS_MAX)


def late_rank(program, folder, only):
    worst = 0
    for name, ranks, kind, words in LATE:
        if only not in (None, name):
            continue
        out = train(program, folder, words, ranks, "cuda")
        all_losses, late = losses_of(out), lateness(out, kind)
        done = replay(folder, out)
        good = late > 0 and all_losses[-1] < all_losses[0]
        said = done.stdout.strip() or done.stderr.strip()
        if done.returncode != 2 or "NumPy" not in done.stderr:
            ledger = out / "ledger.jsonl"
            ledger.write_text(RATE.sub('"rate":1', ledger.read_text(), 1))
            good = good and done.returncode == 0 and replay(folder, out).returncode == 1
        worst = max(worst, not good)
        print(f"{'good' if good else 'WRONG':8} {name:14} {ranks} ranks, {late} updates {kind}, "
              f"loss {all_losses[0]:.3f} to {all_losses[-1]:.3f}; {said}", flush=True)
    return worst


def algorithms_of(program):
    """What rubato-train itself says that there is."""
    said = subprocess.run([program, "--algorithm", "?"], capture_output=True, text=True,
                          check=False, timeout=SECONDS_MAX).stderr
    return re.search(r"takes one of (.*?)(?:, not '|$)", said)[1].split(", ")


def algorithms(program, folder, only):
    tried = {words.split("--algorithm ")[1].split()[0]
             for *_, words in ONE_PATH + ONE_END + LATE}
    if set(algorithms_of(program)) != tried:
        print(f"algorithms that are not tried here: {sorted(set(algorithms_of(program)) - tried)}")
        return 1
    return max(losses_agree(program, folder, ONE_PATH, only), ends_agree(program, folder, only),
               late_rank(program, folder, only))


# ---- Overlap ----


def spans_of(events, rank, kind):
    return [(event["ts"], event["ts"] + event["dur"]) for event in events
            if event["pid"] == rank and event["name"] == kind and event["ph"] == "X"]


def shared(span, others):
    """How long the span and these, which are apart, go on together."""
    return sum(max(0.0, min(span[1], other[1]) - max(span[0], other[0])) for other in others)


def hidden_in(events, ranks):
    """(Share of the time in flight in which the rank was not blocked, share of reductions beside
    which it computed, how many there are.) What is under way after the last step is left out."""
    flight = open_time = beside = count = 0
    for rank in range(ranks):
        computing = spans_of(events, rank, "compute")
        stopped = [span for kind in ("communication", "pause")
                   for span in spans_of(events, rank, kind)]
        for span in spans_of(events, rank, "reduction"):
            if span[0] >= computing[-1][1]:
                continue
            flight += span[1] - span[0]
            open_time += span[1] - span[0] - shared(span, stopped)
            beside += shared(span, computing) > 0
            count += 1
    return open_time / flight, beside / count, count


def step_seconds(out):
    """Of a step after the first line of metrics."""
    lines = metrics_of(out)
    return (lines[-1]["time"] - lines[0]["time"]) / (lines[-1]["step"] - lines[0]["step"])


def overlap(program, folder, options):
    model, steps = (MLP, 24) if options.small else (BIG, 80)
    words = f"--steps {steps} {model} --lr 0.003"
    took = {}
    for name, rule in (("sync", "sync --bucket 0"), ("none", f"local --k {2 * steps}"),
                       ("laga", "laga")):
        out = train(program, folder, f"{words} --algorithm {rule}", 2, "cuda", steps // 4,
                    name == "laga")
        took[name] = step_seconds(out)
    events = json.loads((out / "trace.json").read_text())["traceEvents"]
    free, beside, count = hidden_in(events, 2)
    if options.keep is not None:
        options.keep.mkdir(parents=True, exist_ok=True)
        for name in ("trace.json", "report.html"):
            shutil.copy(out / name, options.keep / f"laga-{name}")
    cost, left = took["sync"] - took["none"], took["laga"] - took["none"]
    print(", ".join(f"{name} {1e3 * seconds:.3f} ms a step" for name, seconds in took.items()))
    print(f"of what communication costs under sync ({1e3 * cost:.3f} ms a step) laga hides "
          f"{1 - left / cost:.2f}" if cost > 0.02 * took["none"] else
          "under sync communication costs less than 0.02 of a step: nothing to hide")
    good = beside >= 0.9 and count >= steps
    print(f"{'good' if good else 'WRONG'}: {count} reductions of 2 ranks are in flight; ranks are "
          f"free in {free:.3f} of that time, and compute beside {beside:.3f} of the reductions, "
          "0.9 must be")
    return int(not good)


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("program", nargs="?", type=pathlib.Path)
    parser.add_argument("what", nargs="?", choices=("losses", "algorithms", "overlap"))
    parser.add_argument("--only")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--help", action="store_true")
    options = parser.parse_args()
    if options.help or options.what is None:
        print(__doc__.strip())
        return 0 if options.help else 2
    program = str(options.program.resolve())
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        text_write(path / "text", 400 if options.small or options.what != "overlap" else 40000)
        images_write(path / "images", 256, (8, 8))
        if options.what == "overlap":
            return overlap(program, path, options)
        run = algorithms if options.what == "algorithms" else losses
        return int(run(program, path, options.only))


if __name__ == "__main__":
    sys.exit(main())
