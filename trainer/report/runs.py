"""runs.py -- what lies in a folder of --out, as far as it can be read; what cannot is said.

Files come from any version and may be cut off anywhere: a line or a value that is not what it
should be is left out and counted, and everything else is still there.
"""

import json
import math
import os
import statistics

TRACE_BYTES_MAX = 256 << 20  # A guess: more takes Python gigabytes.
WINDOW_STEPS = 24  # Of a rank, that the timeline shows.


class Unusable(Exception):
    """There is nothing to show."""


def is_number(value):
    return type(value) in (int, float) and math.isfinite(value)


def is_count(value):
    return type(value) is int and value >= 0


class Update:
    """An applied update. A gradient's age: the local steps that its rank had computed since."""

    def __init__(self, line):
        self.round = line["round"]
        shares = line["contributions"]
        applied = dict(line.get("applied", []))  # Rank -> first step computed after it.
        self.contributors = len({rank for rank, _, _ in shares})
        ages = [(applied[rank] - 1 - first, applied[rank] - 1 - last)
                for rank, first, last in shares if rank in applied]
        count = sum(oldest - newest + 1 for oldest, newest in ages)
        self.age = max((oldest for oldest, _ in ages), default=None)
        self.mean_age = None
        if count > 0:
            whole = sum((oldest + newest) * (oldest - newest + 1) / 2 for oldest, newest in ages)
            self.mean_age = whole / count
        if not is_count(self.round):
            raise ValueError


class Span:
    def __init__(self, event):
        self.kind, self.rank = event["name"], event["pid"]
        self.begin, self.length = event["ts"] * 1e-6, event.get("dur", 0) * 1e-6
        if not (is_number(self.begin) and is_number(self.length) and is_count(self.rank)):
            raise ValueError


class Run:
    def __init__(self, folder):
        self.folder, self.name = folder, os.path.basename(os.path.abspath(folder))
        self.problems, self.summary, self.lines = [], {}, []
        self.updates, self.averages, self.spans = [], [], {}
        self.trace_is_whole = True
        self.made = self.read_whole("run.json", wanted=False) or {}
        self.read_summary()
        self.read_metrics()
        self.read_ledger()
        self.read_trace()
        if not self.summary and not self.lines:
            raise Unusable(f"{folder}: neither summary.json nor metrics.jsonl tells of a run")

    # ---- Files ----

    def complain(self, text):
        self.problems.append(text)

    def open(self, name, wanted=True):
        try:
            return open(os.path.join(self.folder, name), encoding="utf-8", errors="replace")
        except FileNotFoundError:
            if wanted:
                self.complain(f"{name} is missing")
        except OSError as error:
            self.complain(f"{name}: {error.strerror}")
        return None

    def read_whole(self, name, wanted=True):
        file = self.open(name, wanted)
        if file is None:
            return None
        with file:
            try:
                if os.fstat(file.fileno()).st_size > TRACE_BYTES_MAX:
                    self.complain(f"{name} is left out: it is too large for this page")
                    return None
                found = json.load(file)
                if isinstance(found, dict):
                    return found
            except (OSError, ValueError, RecursionError):
                pass
        self.complain(f"{name} is broken: it holds no JSON object")
        return None

    def read_lines(self, name, take, wanted=True):
        file = self.open(name, wanted)
        if file is None:
            return
        bad = []
        with file:
            for number, text in enumerate(file, 1):
                try:
                    take(json.loads(text))
                except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                    bad.append(number)
        if bad:
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            self.complain(f"{name}: line {bad[0]}{more} cannot be read and is left out")

    def read_summary(self):
        found = self.read_whole("summary.json")
        if found is not None:
            self.summary = found

    def read_metrics(self):
        by_step = {}

        def take(line):
            if not is_count(line["step"]) or not is_number(line["time"]):
                raise ValueError
            by_step.setdefault(line["step"], {}).update(line)  # A test may come later.

        self.read_lines("metrics.jsonl", take)
        self.lines = [by_step[step] for step in sorted(by_step)]

    def read_ledger(self):
        def take(line):
            kind = line.get("kind", "update")
            if kind == "average":
                self.averages.append(line)
            elif kind == "update" and "contributions" in line:
                self.updates.append(Update(line))

        self.read_lines("ledger.jsonl", take, wanted=False)
        self.updates.sort(key=lambda update: update.round)

    def read_trace(self):
        found = self.read_whole("trace.json", wanted=False)
        events = found.get("traceEvents") if found else []
        bad = 0
        if not isinstance(events, list):
            events, bad = [], 1
        for event in events:
            try:
                if event["ph"] in "Xi":
                    span = Span(event)
                    self.spans.setdefault(span.rank, []).append(span)
                elif event["name"] == "process_labels":
                    self.trace_is_whole = False
            except (KeyError, TypeError, ValueError):
                bad += 1
        if bad:
            self.complain(f"trace.json: {bad} events cannot be read and are left out")

    # ---- Questions ----

    def value(self, key):
        """A number of the summary; else, where the metrics know it, their last; else None."""
        found = self.summary.get(key)
        if is_number(found):
            return found
        last = self.lines[-1] if self.lines and not self.summary else {}
        names = {"samples": "samples", "seconds": "time", "final_loss": "loss",
                 "global_reductions": "reductions", "bytes_sent": "bytes"}
        found = last.get(names.get(key))
        return found if is_number(found) else None

    def text(self, key):
        found = self.summary.get(key)
        return found if isinstance(found, str) else None

    def settings(self):
        found = self.summary.get("settings")
        found = dict(found) if isinstance(found, dict) else {}
        for key in ("algorithm", "model", "data", "ranks", "batch", "steps", "seed", "parameters",
                    "compute"):
            if key in self.summary:
                found[key] = self.summary[key]
        for key, value in self.computed().items():  # What was not given has a value too.
            found.setdefault(key, value)
        return found

    def computed(self):
        """Of run.json what the options say, by their names."""
        found = {key: self.made.get(key) for key in ("hidden", "optimizer", "momentum",
                                                     "weight_decay", "clip")}
        for part, names in (("rate", {"base": "lr", "kind": "lr-schedule",
                                      "warmup_steps": "warmup"}), ("rule", None)):
            values = self.made.get(part)
            for key, value in (values if isinstance(values, dict) else {}).items():
                if names is None or key in names:
                    found[key if names is None else names[key]] = value
        return {key.replace("_", "-"): value for key, value in found.items() if value is not None}

    def series(self, x, y, scale=1.0):
        return [(line[x], line[y] * scale) for line in self.lines
                if is_number(line.get(x)) and is_number(line.get(y))]

    def tests(self, x, y):
        """As series(); the test at the end of a run is in the summary alone."""
        points = self.series(x, y)
        last, at = self.value(y), self.value({"time": "seconds"}.get(x, x))
        if self.summary and is_number(last) and is_number(at):
            points = [point for point in points if point[0] < at] + [(at, last)]
        return points

    def per_rank(self):
        """Of each rank the seconds of its parts; None where the summary lacks them."""
        found = self.summary.get("per_rank")
        keys = ("compute_seconds", "communication_seconds", "idle_seconds")
        try:
            rows = list(zip(*(found[key] for key in keys), strict=True))
        except (TypeError, KeyError, ValueError):
            return None
        if not rows or not all(is_number(value) for row in rows for value in row):
            return None
        parts = []
        for rank, (compute, communication, idle) in enumerate(rows):
            spans = self.spans.get(rank, []) if self.trace_is_whole else []
            delay = min(compute, sum(span.length for span in spans if span.kind == "delay"))
            communication = min(communication, idle)
            parts.append((compute - delay, delay, communication, idle - communication))
        return parts

    def window(self):
        """Seconds of the trace worth a look: some steps, amid the run, without a pause."""
        spans = [span for spans in self.spans.values() for span in spans]
        steps = [span.length for span in spans if span.kind == "compute" and span.length > 0]
        if not steps:
            return None
        end = max(span.begin + span.length for span in spans)
        count = sum(span.kind == "compute" for span in spans) / len(self.spans)
        # A step takes longer than its computation: the mean of all may say how much.
        length = min(end, max(statistics.median(steps), end / count) * WINDOW_STEPS)
        pauses = [span for span in spans if span.kind == "pause"]

        def paused(begin):
            return sum(max(0.0, min(p.begin + p.length, begin + length) - max(p.begin, begin))
                       for p in pauses)

        shares = (0.5, 0.45, 0.55, 0.4, 0.6, 0.3, 0.7, 0.2, 0.8, 0.1)
        return min(((end - length) * share for share in shares), key=paused), length


def read_all(folders):
    """Runs with names that tell them apart."""
    runs = [Run(folder) for folder in folders]
    names = [run.name for run in runs]
    for index, run in enumerate(runs):
        if names.count(run.name) > 1:
            run.name = os.path.normpath(run.folder)
    for index, run in enumerate(runs):
        if any(other.name == run.name for other in runs[:index]):
            run.name = f"{run.name} ({index + 1})"
    return runs
