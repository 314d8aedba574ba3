"""hyperplane.py -- hyperplane regression with one late rank (eager-SGD, PPoPP 2020)

A linear model of 8,192 dimensions on 8 ranks; a gradient takes 185 ms, an allreduce 10 ms, and one
rank a step, drawn at random, 200, 300 or 400 ms more. 512 steps, rate 0.1 with cosine decay, no
momentum. *Solo* and *majority* collect the newest result only, as the paper's released code does;
*models averaged* drains and averages them every 16 steps. *Each* is this program's default: every
round is applied. The paper's figures (1.50x, 1.75x, 2.01x) are quoted second hand; it averages
models, too. The model is a sequential simulation, written apart from this program. Losses are half
the squared error over the training set, as a ratio to that of synchronous SGD.
"""

from reproduction.common import row
from reproduction.eager_setting import by_seed, speedups

RANKS, STEPS, EVERY = 8, 512, 16
NETWORK = "--bandwidth", "46Mbit"  # 2 * 7 / 8 of 32 KiB in 10 ms.
PAPER = {200: 1.50, 300: 1.75, 400: 2.01}
LATEST = ["--collect", "latest"]

# Name: options, the model's speed over sync by delay, whether it is the paper's form.
FORMS = {
    "solo, models averaged": (["--policy", "solo", *LATEST, "--model-sync-every", EVERY],
                              {200: 1.64, 300: 1.87, 400: 2.02}, True),
    "solo": (["--policy", "solo", *LATEST], {200: 1.80, 300: 2.11, 400: 2.38}, False),
    "majority": (["--policy", "majority", *LATEST], {300: 1.58}, False),
    "solo, each": (["--policy", "solo"], {}, False),
    "quorum:4, each": (["--policy", "quorum:4"], {}, False),
}


def words(seed, delay_ms, algorithm, *more, quick=False):
    return ["--ranks", RANKS, "--model", "hyperplane", "--data", "synthetic", "--batch", 64,
            "--steps", STEPS // 4 if quick else STEPS, "--lr", 0.1, "--lr-schedule", "cosine",
            "--compute-time", "185ms", "--delay", f"random:{delay_ms}ms", "--seed", seed,
            "--algorithm", algorithm, *more]


def run(train, out, seeds, quick):
    rows = []
    for delay_ms, paper in PAPER.items():
        calls = {("sync", s): (f"{delay_ms}-sync-{s}", words(s, delay_ms, "sync", quick=quick),
                               NETWORK) for s in seeds}
        for i, (name, (options, *_)) in enumerate(FORMS.items()):
            calls.update({(name, s): (f"{delay_ms}-{i}-{s}",
                                      words(s, delay_ms, "eager", *options, quick=quick), NETWORK)
                          for s in seeds})
        results = train.many(calls)
        sync = by_seed(results, "sync", seeds)
        for name, (_, model, papers) in FORMS.items():
            runs = by_seed(results, name, seeds)
            rows.append(row(f"{delay_ms} ms, {name}: speed over sync",
                            f"about {paper}" if papers else None, model.get(delay_ms),
                            speedups(sync, runs), "x"))
            rows.append(row(f"{delay_ms} ms, {name}: final loss over sync's", None,
                            1.0 if papers else None,
                            [a["final_loss"] / b["final_loss"] for a, b in zip(runs, sync)], ""))
    return rows
