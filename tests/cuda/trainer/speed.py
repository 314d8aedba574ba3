#!/usr/bin/env python3
"""speed.py -- rubato-train on a device beside eager PyTorch: the same model, batch and precision.

usage: speed.py RUBATO_TRAIN speed|peer [--device cpu|cuda] [--only NAME] [--seconds N]

speed: samples (of gpt: tokens) a second of one rank, ours and PyTorch's in turn, medians of three
runs and their spread; reading batches, each step's loss and the update are in it, starting and the
first quarter of a run are not. PyTorch in the form (peer_torch.py) that was the fastest in a short
run before. Both begin with the same parameters, and the mean of their first losses must agree. A
ratio below the aim fails. What is timed of a run takes N seconds (1). On a processor models are
small, and there are no aims: that shows only that this works.

peer: on the processor, small models: the losses of PyTorch's, step by step, are ours.

PyTorch is what RUBATO_TORCH, a Python, has; else this Python's. Without it: ours alone, which is
said. Exit status: 0; 1 where an aim is missed or something fails; 77 where there is no device, and
for `peer` no PyTorch.
"""

import argparse
import json
import math
import os
import pathlib
import select
import statistics
import subprocess
import sys
import tempfile

from agree import images_write, metrics_of, text_write, train

PEER = pathlib.Path(__file__).resolve().with_name("peer_torch.py")
ANSWER_S = 120
ROUNDS = 3
TRIAL = 10  # Steps, four times: of the first so many both have a mean loss.


class Row:
    """A model, by the words of rubato-train; `aim`: the least ratio to PyTorch's rate."""

    def __init__(self, name, forms, unit, units, precisions, aim, words):
        self.name, self.forms, self.unit, self.units = name, forms, unit, units
        self.precisions, self.aim, self.words = precisions, aim, words

    def run(self):
        """What peer_torch.py is to know of it."""
        words = self.words.split()
        given = {key[2:].replace("-", "_"): value for key, value in zip(words[::2], words[1::2])}
        run = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, **given}
        for key in ("lr", "momentum", "weight_decay"):
            run[key] = float(run[key])
        for key in ("batch", "context", "width", "heads", "layers"):
            if key in run:
                run[key] = int(run[key])
        run["data"] = run["data"].partition(":")[2]
        return run


IMAGES = "--model resnet20 --data npy:pictures --momentum 0.9 --weight-decay 1e-4"
TEXT = "--model gpt --data text:text --optimizer adam --lr 0.0003"
IMAGE_FORMS = ("plain", "tuned", "channels-last")
TEXT_FORMS = ("plain", "tuned")
ROWS = [
    Row("resnet20", IMAGE_FORMS, "samples", 1, ("float32", "tf32"), 1.0,
        f"{IMAGES} --batch 128 --lr 0.01"),
    Row("gpt", TEXT_FORMS, "tokens", 256, ("float32", "tf32", "bfloat16"), 0.9,
        f"{TEXT} --batch 16 --context 256 --width 384 --heads 6 --layers 6"),
]
SMALL_ROWS = [
    # Faster, or with smaller batches, rounding decides which way it goes (docs/gpu.md).
    Row("resnet20", IMAGE_FORMS, "samples", 1, ("float32",), None,
        f"{IMAGES} --batch 32 --lr 0.001"),
    Row("gpt", TEXT_FORMS, "tokens", 16, ("float32",), None,
        f"{TEXT} --batch 4 --context 16 --width 32 --heads 4 --layers 2"),
]
# How far losses may be apart, relative to 1 plus ours.
APART = {"float32": 1e-2, "tf32": 3e-2, "bfloat16": 1e-1}
APART_STEPWISE = 1e-4


class Peer:
    """PyTorch, in a process of its own; `why`: it is not there."""

    def __init__(self, device):
        python = os.environ.get("RUBATO_TORCH") or sys.executable
        self.process = subprocess.Popen([python, "-B", str(PEER), device], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)
        line = self.line()
        self.why = None if line.startswith("{") else line or "peer_torch.py said nothing"
        self.about = "" if self.why else line
        self.absent = self.why is not None and self.process.wait(ANSWER_S) == 77

    def line(self):
        if not select.select([self.process.stdout], [], [], ANSWER_S)[0]:
            raise RuntimeError(f"peer_torch.py: no answer after {ANSWER_S} s")
        return self.process.stdout.readline().strip()

    def ask(self, run):
        self.process.stdin.write(json.dumps(run) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.line() or '{"error": "it has ended"}')
        if "error" in answer:
            raise RuntimeError(f"PyTorch, {run['form']}: {answer['error']}")
        return answer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def data_write(folder, small):
    text_write(folder / "text", 400 if small else 40000)
    images_write(folder / "pictures", *((128, (3, 16, 16)) if small else (2048, (3, 32, 32))))


class Measured:
    """Rates of a row in one precision, and how they come about."""

    def __init__(self, program, folder, device, peer, row, precision):
        self.program, self.folder, self.device = program, folder, device
        self.peer, self.row, self.precision = peer, row, precision
        self.step = row.run()["batch"] * row.units  # Samples or tokens.
        self.parameters = None

    def ours(self, quarter, more=""):
        """(Samples or tokens a second after the first quarter, mean loss of that.)"""
        words = f"{self.row.words} --precision {self.precision} --steps {4 * quarter} {more}"
        out = train(self.program, self.folder, words, 1, self.device, quarter)
        lines = metrics_of(out)
        self.parameters = json.loads((out / "summary.json").read_text())["parameters"]
        seconds = lines[-1]["time"] - lines[0]["time"]
        return 3 * quarter * self.step / seconds, lines[0]["loss"]

    def theirs(self, form, warm, steps, shuffle=True):
        """(Samples or tokens a second after the first `warm`, loss of each step.)"""
        answer = self.peer.ask({**self.row.run(), "folder": str(self.folder),
                                "initial": f"{self.device}/initial.npy", "form": form,
                                "precision": self.precision, "warm": warm, "steps": steps,
                                "shuffle": shuffle})
        if answer["parameters"] != self.parameters:
            raise RuntimeError(f"{answer['parameters']} parameters, ours has {self.parameters}")
        return steps * self.step / answer["seconds"], answer["losses"]

    def quarter(self, rate, seconds):
        return max(TRIAL, math.ceil(seconds * rate / self.step / 3))


def spread(rates):
    return f"{statistics.median(rates):,.0f} ({min(rates):,.0f} to {max(rates):,.0f})"


def verdict(ratio, aim):
    """(What is said, whether it fails.)"""
    if aim is None:
        return "no aim here", False
    missed = ratio < aim
    return f"at least {aim:.2f} is wanted: {'MISSED' if missed else 'met'}", missed


def row_measured(measured, seconds):
    """(Lines of the report, whether it fails.)"""
    row, head = measured.row, f"{measured.row.name:9} {measured.precision:9}"
    rate, loss = measured.ours(TRIAL, "--no-shuffle")
    quarter = measured.quarter(rate, seconds)
    if measured.peer.why is not None:
        rates = [measured.ours(quarter)[0] for _ in range(ROUNDS)]
        return [f"{head} {spread(rates)} {row.unit}/s, {measured.parameters} parameters"], False
    trials, apart = {}, 0.0
    for form in row.forms:
        trials[form], losses = measured.theirs(form, 2 * TRIAL, 2 * TRIAL, False)
        apart = max(apart, abs(statistics.mean(losses[:TRIAL]) - loss) / (1 + abs(loss)))
    best = max(trials, key=trials.get)
    peer_quarter = measured.quarter(trials[best], seconds)
    ours, theirs = [], []
    for _ in range(ROUNDS):
        ours.append(measured.ours(quarter)[0])
        theirs.append(measured.theirs(best, peer_quarter, 3 * peer_quarter)[0])
    ratio = statistics.median(ours) / statistics.median(theirs)
    said, missed = verdict(ratio, row.aim)
    other = apart > APART[measured.precision]
    lines = [f"{head} {spread(ours)}, PyTorch {best} {spread(theirs)} {row.unit}/s: {ratio:.3f} of "
             f"it; {said}",
             f"{'':19} {measured.parameters} parameters in both; first {TRIAL} losses {apart:.1e} "
             f"apart{' TOO FAR' if other else ''}; short runs: "
             + ", ".join(f"{form} {trials[form]:,.0f}" for form in row.forms)]
    return lines, missed or other


def speed(program, folder, options, rows):
    failed = False
    with Peer(options.device) as peer:
        if peer.why is not None and not peer.absent:
            print(peer.why)
            return 1
        print(f"PyTorch: {peer.why or peer.about}{'; ours alone' if peer.why else ''}", flush=True)
        for row in rows:
            for precision in row.precisions:
                try:
                    lines, bad = row_measured(Measured(program, folder, options.device, peer, row,
                                                       precision), options.seconds)
                except RuntimeError as error:
                    lines, bad = [f"{row.name:9} {precision:9} FAILED: {error}"], True
                print("\n".join(lines), flush=True)
                failed |= bad
    return int(failed)


def peer_losses(program, folder, options, rows):
    """Every form, and the rounding of bfloat16, against ours; and that another rate is seen."""
    failed, steps = False, 8
    with Peer("cpu") as peer:
        if peer.why is not None:
            print(peer.why)
            return 77 if peer.absent else 1
        for row in rows:
            out = train(program, folder, f"{row.words} --steps {steps} --no-shuffle", 1, "cpu")
            here = [line["loss"] for line in metrics_of(out)]
            count = json.loads((out / "summary.json").read_text())["parameters"]
            run = {**row.run(), "folder": str(folder), "initial": "cpu/initial.npy", "warm": 0,
                   "steps": steps, "shuffle": False, "precision": "float32"}
            cases = [(form, {"form": form}, APART_STEPWISE, True) for form in row.forms]
            cases.append(("bfloat16", {"form": "tuned", "precision": "bfloat16"}, 5e-2, True))
            cases.append(("another rate", {"form": "plain", "lr": 1.5 * run["lr"]}, APART_STEPWISE,
                          False))
            for what, more, most, same in cases:
                answer = peer.ask({**run, **more})
                assert (answer["parameters"], len(answer["losses"])) == (count, steps), answer
                apart = max(abs(a - b) / (1 + a) for a, b in zip(here, answer["losses"]))
                good = (apart <= most) == same
                failed |= not good
                print(f"{'good' if good else 'WRONG':6} {row.name:9} {what:14} at most {apart:.1e} "
                      f"apart, {'at most' if same else 'more than'} {most:.0e} is right",
                      flush=True)
    return int(failed)


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("program", nargs="?", type=pathlib.Path)
    parser.add_argument("what", nargs="?", choices=("speed", "peer"))
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--only")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--help", action="store_true")
    options = parser.parse_args()
    if options.help or options.what is None:
        print(__doc__.strip())
        return 0 if options.help else 2
    small = options.what == "peer" or options.device == "cpu"
    rows = [row for row in (SMALL_ROWS if small else ROWS) if options.only in (None, row.name)]
    with tempfile.TemporaryDirectory() as folder:
        data_write(pathlib.Path(folder), small)
        run = peer_losses if options.what == "peer" else speed
        return run(str(options.program.resolve()), pathlib.Path(folder), options, rows)


if __name__ == "__main__":
    sys.exit(main())
