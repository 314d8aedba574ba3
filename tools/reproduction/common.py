"""common.py -- what the experiments share: runs of rubato-train, data, figures over seeds, tables.

An experiment is a module with run(train, out, seeds, quick) that returns rows:

    row("what", paper=2.0, model=1.9, measured=[1.8, 1.9], unit="x")

`train` runs rubato-train (class Train), `out` is a folder of its own (pathlib.Path), `seeds` a list
of numbers, `quick` asks for minutes instead of an hour. The first line of the module's docstring is
the title, the rest goes above the table. Figures of single seeds are handed over as they are: means
and spreads are made here.
"""

import array
import concurrent.futures
import gzip
import json
import os
import pathlib
import shlex
import signal
import statistics
import subprocess
import sys
import threading
import time

FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
PIXELS, CLASSES = 784, 10


class Failed(Exception):
    """A run did not do what was asked; the text is for the user."""


def say(text):
    """Progress, for people: standard output belongs to the table."""
    print(text, file=sys.stderr, flush=True)


class Run:
    """What a finished run left: its summary, the lines of metrics.jsonl, its folder."""

    def __init__(self, folder, command, wall_seconds):
        self.folder, self.command, self.wall_seconds = folder, command, wall_seconds
        self.summary = json.loads((folder / "summary.json").read_text())
        self.metrics = lines(folder / "metrics.jsonl")

    def __getitem__(self, key):
        return self.summary[key]


class Train:
    """Runs rubato-train: train("name", "--ranks", 4, "--algorithm", "laga", ...) -> Run.

    `simulate` says whether runs are in virtual time (then exact under any load). Words that only a
    simulation understands (its network) go into `network`, and are left out of real runs.
    """

    def __init__(self, program, out, simulate=True, limit_s=1800, jobs=None):
        self.program, self.out = pathlib.Path(program), pathlib.Path(out)
        self.simulate, self.limit_s = simulate, limit_s
        self.jobs = (jobs or os.cpu_count() or 1) if simulate else 1  # Real ranks share cores.
        self.commands = []
        self.lock = threading.Lock()

    def __call__(self, name, *words, network=(), limit_s=None):
        folder = self.out / name
        folder.mkdir(parents=True, exist_ok=True)
        mode = ["--simulate", *network] if self.simulate else []
        command = [self.program, *words, *mode, "--out", folder, "--quiet"]
        start = time.monotonic()
        execute(command, limit_s or self.limit_s)
        run = Run(folder, shlex.join(map(str, command)), time.monotonic() - start)
        with self.lock:
            self.commands.append(run.command)
        say(f"  {name}: loss {run['final_loss']:.5g}"
            + (f", accuracy {100 * run['test_accuracy']:.2f} %" if run["test_accuracy"] else "")
            + f", {run['seconds']:.4g} s{' simulated' if self.simulate else ''}"
            + f" ({run.wall_seconds:.1f} s here)")
        return run

    def many(self, calls, may_diverge=False):
        """calls: {key: (name, words)} or {key: (name, words, network)}; the runs by key. As many
        at a time as there are cores where time is virtual, one after the other where it is real.
        may_diverge: a run whose loss does not stay finite is None."""
        def one(call):
            name, words, *network = call
            try:
                return self(name, *words, network=network[0] if network else ())
            except Failed as failure:
                if not may_diverge or "the training diverged" not in str(failure):
                    raise
                say(f"  {name}: diverged")
                return None

        with concurrent.futures.ThreadPoolExecutor(self.jobs) as pool:
            futures = {key: pool.submit(one, call) for key, call in calls.items()}
            try:
                return {key: future.result() for key, future in futures.items()}
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                end_all()
                raise

    def tool(self, name):
        """Another program of the same build, or of the same installation."""
        for folder in self.program.parent, self.program.parent.parent / "tools":
            if (folder / name).is_file():
                return folder / name
        raise Failed(f"{name} is neither beside {self.program} nor in ../tools")


running = set()  # Programs at work, each the first of its group.


def end_all():
    """Ends what is at work, with all that it started."""
    for process in list(running):
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue  # It has just ended.


def execute(command, limit_s):
    """Runs to the end; its standard output. Whatever it started ends with it."""
    words = [str(word) for word in command]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, env=env, start_new_session=True)
    running.add(process)
    try:
        output, errors = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        raise Failed(f"not over after {limit_s:g} s: {shlex.join(words)}") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        running.discard(process)
    if process.returncode != 0:
        raise Failed(f"exit {process.returncode}: {shlex.join(words)}\n{errors.strip()}")
    return output


def lines(path):
    """The objects of a file of JSON lines."""
    with open(path) as file:
        return [json.loads(text) for text in file]


# ---- Figures ----

def mean(values):
    return statistics.fmean(values)


def spread(values):
    """The standard deviation between seeds; None for a single one."""
    return statistics.stdev(values) if len(values) > 1 else None


def row(what, paper=None, model=None, measured=None, unit=""):
    """A line of the table. `measured`: a figure, or one for each seed. None: there is none."""
    single = measured is None or isinstance(measured, (int, float, str))
    return {
        "what": what, "paper": paper, "model": model,
        "measured": measured if single else mean(measured),
        "spread": None if single else spread(measured),
        "unit": unit,
    }


def time_to(run, accuracy):
    """Seconds of training until a test reached this accuracy (a fraction); None: it never did.
    Between two tests it is taken to grow evenly. Wants --eval-every."""
    before = None
    for line in run.metrics:
        reached = line.get("test_accuracy")
        if reached is None:
            continue
        if reached >= accuracy:
            if before is None:
                return line["time"]
            share = (accuracy - before["test_accuracy"]) / (reached - before["test_accuracy"])
            return before["time"] + share * (line["time"] - before["time"])
        before = line
    return None


def curve(run, key, against="time"):
    """Points of a plot from metrics.jsonl; lines without the value are left out."""
    return [(line[against], line[key]) for line in run.metrics if line.get(key) is not None]


# ---- Data ----

def write_npy(path, descr, shape, chunks):
    """`chunks`: bytes, or an iterable of bytes, in C order."""
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}"
    head = head.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
        for chunk in [chunks] if isinstance(chunks, (bytes, bytearray)) else chunks:
            file.write(chunk)


def floats(values):
    """float32 for write_npy."""
    made = array.array("f", values)
    if sys.byteorder != "little":
        made.byteswap()
    return made.tobytes()


def validation_split(folder, train_rows=50000, validation_rows=10000, source=FASHION):
    """Fashion-MNIST's training set cut in two, as npy:FOLDER: what a learning rate may be chosen
    by. x_test.npy and y_test.npy are the last `validation_rows` of the 60,000; the test set proper
    stays untouched. Returns the word for --data."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with gzip.open(source / "train-images-idx3-ubyte.gz") as file:
            images = file.read()[16:]
        with gzip.open(source / "train-labels-idx1-ubyte.gz") as file:
            labels = file.read()[8:]
    except OSError as error:
        raise Failed(f"Fashion-MNIST: {error} (package dataset-fashion-mnist)") from None
    total = len(labels)
    if train_rows + validation_rows > total:
        raise Failed(f"{train_rows} + {validation_rows} rows of {total}")
    pixel = [floats([(value / 255 - 0.286) / 0.353]) for value in range(256)]

    def part(x_name, y_name, first, count):
        rows = (b"".join(map(pixel.__getitem__, images[i * PIXELS:(i + 1) * PIXELS]))
                for i in range(first, first + count))
        write_npy(folder / x_name, "<f4", (count, PIXELS), rows)
        write_npy(folder / y_name, "|u1", (count,), labels[first:first + count])

    part("x.npy", "y.npy", 0, train_rows)
    part("x_test.npy", "y_test.npy", total - validation_rows, validation_rows)
    return f"npy:{folder}"


# ---- Tables and plots ----

def number(value, spread_of_it=None):
    """Four digits are more than any of these figures has."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    text = f"{value:,}" if isinstance(value, int) else f"{value:.4g}"
    return text if not spread_of_it else f"{text} ± {spread_of_it:.2g}"


def markdown(rows):
    out = ["| | paper | model | measured | unit |", "|---|---|---|---|---|"]
    for r in rows:
        cells = [r["what"], number(r["paper"]), number(r["model"]),
                 number(r["measured"], r.get("spread")), r["unit"]]
        out.append("| " + " | ".join(cells) + " |")
    return "\n".join(out)


def pyplot():
    """matplotlib's, or None where it is not installed."""
    try:
        import matplotlib
    except ImportError:
        return None
    matplotlib.use("Agg")
    from matplotlib import pyplot as plot
    return plot


def plot_curves(path, title, x_label, y_label, curves, log_y=False, points=False, lines=True):
    """`curves`: {name: [(x, y), ...]}. Writes an SVG; without matplotlib nothing."""
    plot = pyplot()
    if plot is None:
        return False
    figure, axes = plot.subplots(figsize=(7, 4.2))
    for name, xy in curves.items():
        axes.plot(*zip(*xy), linestyle="-" if lines else "none",
                  marker="o" if points else None, markersize=4, label=name)
    axes.set(title=title, xlabel=x_label, ylabel=y_label)
    if log_y:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path)
    plot.close(figure)
    return True
