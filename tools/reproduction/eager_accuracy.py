"""eager_accuracy.py -- what partial allreduces cost in accuracy, and what they gain (eager-SGD)

An MLP (784-64-10) on Fashion-MNIST, 8 ranks, batch 32 a rank, momentum 0.9, 6 epochs; a gradient
takes 185 ms, an allreduce 10 ms, and one rank a step, drawn at random, 300 ms more. All runs use
the same number of samples. *Majority* is the paper's policy; *quorum:4* opens a round with the 4th
ready rank; with `each` (the default here) a rank applies all finished rounds before its next
gradient, with `own` (the paper's) the round of its own step, however old its parameters get.
*Look-ahead* computes a late rank's gradient where momentum will have led. The paper's claim for
majority (64 ranks, ResNet-50, 4 late ranks): top-1 accuracy within about a point, 1.25x to 1.29x,
quoted second hand. The model is a sequential simulation, written apart from this program, with
three seeds of its own; a difference of 0.3 points is within the spread of seeds.
"""

from reproduction.common import plot_curves, row
from reproduction.eager_setting import accuracies, by_seed, call, gain_rows

DELAY = "--delay", "random:300ms"

# Name: options, and what the model says of speed and of accuracy minus sync's.
FORMS = {
    "majority": (["--policy", "majority"], 1.63, -0.1),
    "majority, own": (["--policy", "majority", "--collect", "own"], 1.63, -0.1),
    "quorum:4": (["--policy", "quorum:4"], 1.98, -0.2),
    "quorum:4, free rounds": (["--policy", "quorum:4", "--rounds", "free"], 2.07, -0.1),
    "quorum:4, own": (["--policy", "quorum:4", "--collect", "own"], 1.98, -0.7),
    "solo with look-ahead": (["--policy", "solo", "--lag-comp", "lookahead"], 2.17, -0.3),
    "solo": (["--policy", "solo"], 2.17, -0.7),
    "solo, own": (["--policy", "solo", "--collect", "own"], 2.17, -13.0),
    "solo, late dropped": (["--policy", "solo", "--late", "drop"], None, None),
    "adaptive:1": (["--policy", "adaptive:1", "--rounds", "aligned"], None, None),
    "adaptive:1 without look-ahead": (["--policy", "adaptive:1", "--rounds", "aligned",
                                       "--lag-comp", "none"], None, None),
    "adaptive": ([], None, None),
}


def run(train, out, seeds, quick):
    calls = {("sync", s): call(f"sync-{s}", s, "sync", *DELAY, quick=quick) for s in seeds}
    for name, (options, *_) in FORMS.items():
        folder = "".join(c if c.isalnum() else "-" for c in name)
        calls.update({(name, s): call(f"{folder}-{s}", s, "eager", *DELAY, *options, quick=quick)
                      for s in seeds})
    results = train.many(calls)
    sync = by_seed(results, "sync", seeds)
    rows = [row("sync: accuracy", None, 86.87, accuracies(sync), "%")]
    for name, (_, speed, accuracy) in FORMS.items():
        paper = "1.25 to 1.29" if name == "majority, own" else None
        rows += gain_rows(name, sync, by_seed(results, name, seeds), speed, accuracy, paper)
    plot_curves(out / "tradeoff.svg", "one late rank of 8", "speed over sync", "accuracy, %",
                {name: [(sync[0]["seconds"] / r["seconds"], 100 * r["test_accuracy"])
                        for r in by_seed(results, name, seeds)]
                 for name in ("sync", *FORMS) if name != "solo, own"}, points=True)
    return rows
