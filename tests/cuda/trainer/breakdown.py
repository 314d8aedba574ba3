#!/usr/bin/env python3
"""breakdown.py -- where the time of a step goes on the device: ours, and PyTorch's of that model.

usage: breakdown.py LIBRARY [--device cpu|cuda] [--only NAME] [--keep DIR]

LIBRARY is rubato-train as one (in_process.c): PyTorch's profiler records all that its process has
the device do, so ours runs within it. For each model and precision of speed.py: kernels and copies
by name, with their number and time of a step, those first that take longest; and how long the
device is busy in a step. A profiler takes time of the host, so steps are longer than they are.
--keep: all names, as breakdown.json. On a processor there is nothing of ours to be recorded.

Exit status: 0; 1 where something fails or nothing was recorded; 77 without PyTorch or a device.
"""

import argparse
import collections
import ctypes
import json
import os
import pathlib
import sys
import tempfile

import speed
from agree import images_write, metrics_of, text_write

TOP = 6
STEPS = 60
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


def by_name(events, steps, kinds=ON_DEVICE):
    """(Name, times a step, us a step), those first that take longest."""
    count, time_us = collections.Counter(), collections.Counter()
    for event in events:
        if event.get("ph") == "X" and event.get("cat") in kinds:
            count[event["name"]] += 1
            time_us[event["name"]] += event["dur"]
    return [(name, count[name] / steps, total / steps) for name, total in time_us.most_common()]


def table(head, names, step_us):
    busy = sum(time_us for *_, time_us in names)
    launches = sum(count for _, count, _ in names)
    lines = [f"{head}: {step_us:,.0f} us a step, busy {busy:,.0f} us with {launches:.0f} of:"]
    lines += [f"  {time_us:9.1f} us {count:7.1f} x  {name[:78]}"
              for name, count, time_us in names[:TOP]]
    rest = names[TOP:]
    if rest:
        lines.append(f"  {sum(us for *_, us in rest):9.1f} us {sum(n for _, n, _ in rest):7.1f} x  "
                     f"{len(rest)} others")
    return lines


class Profiler:
    def __init__(self, torch, device, folder):
        self.torch, self.path = torch, folder / "profile.json"
        self.on_device = device == "cuda"
        activity = torch.profiler.ProfilerActivity
        self.activities = [activity.CUDA if self.on_device else activity.CPU]
        self.kinds = ON_DEVICE if self.on_device else ("cpu_op",)

    def record(self, call, steps):
        with self.torch.profiler.profile(activities=self.activities) as profiler:
            result = call()
            if self.on_device:
                self.torch.cuda.synchronize()
        profiler.export_chrome_trace(str(self.path))
        events = json.loads(self.path.read_text())["traceEvents"]
        return result, by_name(events, steps, self.kinds)


def ours(library, row, precision, device):
    """Microseconds of a step after the first quarter."""
    words = ["rubato-train", *row.words.split(), "--steps", str(STEPS), "-q", "--report-every",
             str(STEPS // 4), "--final-rows", "0", "--no-report", "--out", device, "--device",
             device, *(["--precision", precision] if device == "cuda" else [])]
    arguments = (ctypes.c_char_p * (len(words) + 1))(*(word.encode() for word in words), None)
    if library.trainer_run(len(words), arguments) != 0:
        raise RuntimeError("rubato-train has failed")
    lines = metrics_of(pathlib.Path(device))
    return (lines[-1]["time"] - lines[0]["time"]) / (lines[-1]["step"] - lines[0]["step"]) * 1e6


def theirs(peer, torch, row, precision, device):
    run = {**row.run(), "folder": ".", "initial": f"{device}/initial.npy", "form": "tuned",
           "precision": precision, "warm": STEPS // 4, "steps": STEPS - STEPS // 4,
           "shuffle": True}
    return peer.measured(run, torch.device(device))["seconds"] / run["steps"] * 1e6


def both(library, torch, peer, profiler, row, precision, device):
    """Names of ours, names of PyTorch's; printed, too."""
    head = f"{row.name} {precision}"
    step_us, mine = profiler.record(lambda: ours(library, row, precision, device), STEPS)
    print("\n".join(table(f"{head}, rubato-train", mine, step_us)), flush=True)
    theirs(peer, torch, row, precision, device)  # cuDNN tries its algorithms.
    step_us, other = profiler.record(lambda: theirs(peer, torch, row, precision, device), STEPS)
    print("\n".join(table(f"{head}, PyTorch tuned", other, step_us)), flush=True)
    return mine, other


def main():
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("library", nargs="?", type=pathlib.Path)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--only")
    parser.add_argument("--keep", type=pathlib.Path)
    parser.add_argument("--help", action="store_true")
    options = parser.parse_args()
    if options.help or options.library is None:
        print(__doc__.strip())
        return 0 if options.help else 2
    import peer_torch as peer  # Ends the program where there is no PyTorch.
    torch = peer.torch
    if options.device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch has no CUDA device here")
        return 77
    if options.device == "cuda":
        torch.zeros(1, device="cuda")  # Its context is there when ours asks for it.
    library = ctypes.CDLL(str(options.library.resolve()))
    keep = None if options.keep is None else options.keep.resolve()
    rows = speed.SMALL_ROWS if options.device == "cpu" else speed.ROWS
    made, silent = {}, False
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        text_write(pathlib.Path("text"), 8000)
        images_write(pathlib.Path("pictures"), *((128, (3, 16, 16)) if options.device == "cpu"
                                                 else (1024, (3, 32, 32))))
        for name in ("x_test.npy", "y_test.npy"):  # A test would be recorded, too.
            pathlib.Path("pictures", name).unlink()
        profiler = Profiler(torch, options.device, pathlib.Path(folder))
        for row in rows:
            for precision in row.precisions if options.only in (None, row.name) else ():
                mine, other = both(library, torch, peer, profiler, row, precision, options.device)
                made[f"{row.name} {precision}"] = {"rubato-train": mine, "PyTorch": other}
                silent |= not other or (options.device == "cuda" and not mine)
        os.chdir("/")
    if keep is not None:
        (keep / "breakdown.json").write_text(json.dumps(made, indent=1) + "\n")
    if silent:
        print("nothing was recorded of one of them")
    return int(silent)


if __name__ == "__main__":
    sys.exit(main())
