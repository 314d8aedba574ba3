"""eager_setting.py -- what the figures on stragglers share: model, data, time and delays."""

from reproduction.common import row

RANKS = 8
COMPUTE_MS = 185
REDUCE_MS = 10  # A ring of 8 sends 2 * 7 / 8 of 50,890 floats: 356 KB, at 35.6 MB/s.
NETWORK = "--bandwidth", "285Mbit"


def words(seed, algorithm, *more, ranks=RANKS, quick=False, window=True, data="fashion-mnist",
          rate=0.02, momentum=0.9):
    """The command line of one run, but for the name."""
    early = ["--window", "5ms"] if algorithm == "eager" and window else []
    return ["--ranks", ranks, "--model", "mlp", "--hidden", 64, "--data", data,
            "--batch", 32, "--epochs", 2 if quick else 6, "--lr", rate, "--momentum", momentum,
            "--weight-decay", 1e-4, "--lr-schedule", "cosine", "--compute-time",
            f"{COMPUTE_MS}ms", "--seed", seed, "--algorithm", algorithm, *early, *more]


def call(name, *found, **options):
    """One entry for Train.many()."""
    return name, words(*found, **options), NETWORK


def speedups(base, runs):
    """By seed: how much less time `runs` took than `base` for the same samples."""
    return [b["seconds"] / r["seconds"] for b, r in zip(base, runs)]


def points(base, runs):
    """By seed: test accuracy beyond that of `base`, in percentage points."""
    return [100 * (r["test_accuracy"] - b["test_accuracy"]) for b, r in zip(base, runs)]


def accuracies(runs):
    return [100 * r["test_accuracy"] for r in runs]


def by_seed(results, key, seeds):
    return [results[key, seed] for seed in seeds]


def gain_rows(text, base, runs, speed=None, accuracy=None, paper=None):
    """Speed and accuracy against the same base; `speed`, `accuracy`: what a model says."""
    return [row(f"{text}: speed over sync", paper, speed, speedups(base, runs), "x"),
            row(f"{text}: accuracy minus sync's", None, accuracy, points(base, runs), "points")]
