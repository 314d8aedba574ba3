"""laga.py -- lagged allreduce with gradient accumulation (LAGA, ICDM 2021)

*Speed.* c is the time of a micro-batch, l that of the allreduce of the whole gradient (measured: a
run that only reduces), r = l / c. Synchronous SGD with A accumulated micro-batches takes A c + l a
round, LAGA max(A c, l): the model of the gain is (A + r) / max(A, r). r = 2.35 is VGG-16 on the
authors' machine, by their tables, from which the paper's column there is taken too. Baselines
reduce the gradient in one piece, after the backward pass, as the paper's do. Idle time is what a
rank does not compute.

*Training.* Fashion-MNIST, `mlp`, 8 ranks, micro-batches of 4, momentum 0, rate 0.1 (times the
square root of the micro-batches per update), cosine after 5 % warm-up. LAGA accumulates until the
allreduce is done, which takes D times a micro-batch. *Blocking* is synchronous SGD with A
micro-batches a step at the same rule of rates, and the best A of those tried. *Unequal*: the ranks'
micro-batches take from c to 2 c, and LAGA's ranks share the work (`--work shared`). The model's
column is what an independent simulation of such settings gave. Equal samples throughout.
"""

import os

from reproduction.common import Failed, curve, mean, plot_curves, row, time_to

RANKS = 8
NETWORK = "--bandwidth", "400Mbit"
SLACK = 0.98  # Of D: an allreduce that ends just when a rank asks would be a toss-up.
RATIOS, ACCUMULATE = (0.5, 1.0, 2.35), (1, 2, 4, 8)
PAPER_VGG16 = {1: 1.28, 2: 1.50, 4: 1.41, 8: 1.18}  # Over the authors' own SSGD.
TARGET, EPOCHS = 0.88, 10
BLOCKING = {1: (2, 4), 4: (2, 4, 8)}  # D: micro-batches a step.
EXPECTED = {  # D: time to the target over sync, with equal ranks, unequal ones, blocking.
    1: ("1.9-2.1", "2.1-2.5", "1.3-1.7"),
    4: ("3.4-3.7", "3.7-4.1", "2.0-3.3"),
}


def seconds(value):
    return f"{value * 1e6:.3f}us"


# ---- Speed ----

def speed_words(steps, *more):
    return ["--ranks", RANKS, "--model", "mlp", "--steps", steps,
            "--report-every", 1000000, *more]


def speed_calls(reduction_s, rounds):
    """{(r, A, rule): call}: as many micro-batches a round, one reduction each."""
    calls = {}
    for r in RATIOS:
        c = reduction_s / r
        for a in ACCUMULATE:
            sync = speed_words(rounds, "--algorithm", "sync", "--bucket", 0, "--batch", a,
                               "--compute-time", seconds(a * c))
            laga = speed_words(rounds * a, "--algorithm", "laga", "--accumulate", a, "--batch", 1,
                               "--compute-time", seconds(c))
            calls[r, a, "sync"] = f"speed-{r}-{a}-sync", sync, NETWORK
            calls[r, a, "laga"] = f"speed-{r}-{a}-laga", laga, NETWORK
    return calls


def speed_rows(train, quick):
    rounds = 40 if quick else 100
    alone = train("speed-reduction", *speed_words(20, "--algorithm", "sync", "--bucket", 0,
                                                  "--batch", 1), network=NETWORK)
    reduction_s = alone["communication_seconds"] / 20
    runs = train.many(speed_calls(reduction_s, rounds))
    rows, gains, idles, points = [], {}, {}, {}
    for r in RATIOS:
        for a in ACCUMULATE:
            sync, laga = (runs[r, a, rule] for rule in ("sync", "laga"))
            model = (a + r) / max(a, r)
            gain = sync["seconds"] / laga["seconds"]
            rows.append(row(f"r = {r:g}, A = {a}: speed over sync with the same A",
                            PAPER_VGG16[a] if r == 2.35 else None, model, gain, "x"))
            points.setdefault(f"r = {r:g}", []).append((a, gain))
            points.setdefault(f"r = {r:g}, model", []).append((a, model))
            whole = runs[r, 1, "sync"]["samples_per_second"]
            gains[r, a] = laga["samples_per_second"] / whole
            idles[r, a] = (sync["idle_fraction"] * sync["seconds"]
                           / (laga["idle_fraction"] * laga["seconds"]))
    rows.append(row("r = 2.35: speed of A = 8 over sync with A = 1", 2.96, 1 + 2.35,
                    gains[2.35, 8], "x"))
    rows.append(row("r = 2.35, A = 4: idle time of sync over LAGA's", 5.24, None,
                    idles[2.35, 4], "x"))
    return rows, points


# ---- Training ----

def training_calls(d, micro_s, epochs, seed):
    """{rule: call} for one D and seed; 60,000 samples an epoch."""
    def words(name, step_s, batch, rate, *more):
        warmup = 60000 // (RANKS * batch) * epochs // 20
        return (f"training-{d}-{seed}-{name}", [
            "--ranks", RANKS, "--model", "mlp", "--data", "fashion-mnist", "--epochs", epochs,
            "--batch", batch, "--lr", f"{rate:.6g}", "--weight-decay", 1e-4, "--seed", seed,
            "--lr-schedule", f"warmup:{warmup},cosine", "--compute-time", seconds(step_s),
            "--eval-every", 1, "--report-every", 1000000, *more], NETWORK)

    sync = "--algorithm", "sync", "--bucket", 0
    laga = "--algorithm", "laga", "--accumulate", "until-done", "--rate-by-count"
    slow = "--delay", f"linear:{seconds(micro_s)}"
    calls = {
        "sync": words("sync", micro_s, 4, 0.1, *sync),
        "laga": words("laga", micro_s, 4, 0.1, *laga),
        "sync, unequal": words("sync-unequal", micro_s, 4, 0.1, *sync, *slow),
        "laga, unequal": words("laga-unequal", micro_s, 4, 0.1, *laga, *slow,
                               "--work", "shared"),
    }
    for a in BLOCKING[d]:
        calls[a] = words(f"blocking-{a}", a * micro_s, 4 * a, 0.1 * a**0.5, *sync)
    return calls


def gain_over(base, runs, target):
    """Of each seed: time to the target of `base` over that of `runs`; 0: it is not reached."""
    pairs = [(time_to(b, target), time_to(r, target)) for b, r in zip(base, runs)]
    return [b / r if b and r else 0.0 for b, r in pairs]


def training_rows(train, reduction_s, seeds, quick):
    epochs, target = (2, 0.85) if quick else (EPOCHS, TARGET)
    rows, points = [], {}
    for d in BLOCKING:
        micro_s = reduction_s / (SLACK * d)
        calls = {(rule, seed): call for seed in seeds
                 for rule, call in training_calls(d, micro_s, epochs, seed).items()}
        runs = train.many(calls)
        of = {rule: [runs[rule, seed] for seed in seeds] for rule, _ in calls}
        text = f"D = {d}, time to {100 * target:g} % over sync"
        gains = {rule: gain_over(of["sync"], of[rule], target) for rule in ("laga", *BLOCKING[d])}
        best = max(BLOCKING[d], key=lambda a: mean(gains[a]))
        unequal = gain_over(of["sync, unequal"], of["laga, unequal"], target)
        for name, gain, expected in (("LAGA", gains["laga"], EXPECTED[d][0]),
                                     ("LAGA, unequal ranks", unequal, EXPECTED[d][1]),
                                     (f"blocking, A = {best}", gains[best], EXPECTED[d][2])):
            rows.append(row(f"{text}: {name}", None, None if quick else expected, gain, "x"))
        for rule in ("sync", "laga", "laga, unequal"):
            rows.append(row(f"D = {d}, test accuracy: {rule}", None, None,
                            [100 * run["test_accuracy"] for run in of[rule]], "%"))
        rows.append(row(f"D = {d}, micro-batches a rank and round", None, None,
                        [run["steps"] / run["rounds"] for run in of["laga"]], ""))
        for rule in ("sync", "laga"):
            points[f"{rule}, D = {d}"] = curve(of[rule][0], "test_accuracy")
    return rows, points


def run(train, out, seeds, quick):
    if not train.simulate:
        raise Failed("laga: c and l are set by the simulated network: --simulate only")
    before = os.environ.get("RUBATO_ALGORITHM")
    # The size is near a boundary of the library's choice, and the counts that ride along cross it.
    os.environ["RUBATO_ALGORITHM"] = "allreduce=ring"
    try:
        rows, points = speed_rows(train, quick)
        plot_curves(out / "speed.svg", "LAGA over synchronous SGD, 8 ranks", "A", "speed",
                    points, points=True)
        alone = train("reduction", *speed_words(20, "--algorithm", "sync", "--bucket", 0,
                                                "--batch", 4), network=NETWORK)
        more, points = training_rows(train, alone["communication_seconds"] / 20, seeds, quick)
        plot_curves(out / "accuracy.svg", "Fashion-MNIST, 8 ranks, micro-batches of 4",
                    "seconds (simulated)", "test accuracy", points)
    finally:
        if before is None:
            del os.environ["RUBATO_ALGORITHM"]
        else:
            os.environ["RUBATO_ALGORITHM"] = before
    return rows + more
