"""headline.py -- each method at its own best rate and momentum

The setting is that of eager-accuracy: 8 ranks, one of them, drawn at random, 300 ms late in each
step. A rate that is good for one method is bad for another, and so is a momentum: each has the
pair that is best for it on a validation set (10,000 of the training samples, one seed) of a lasting
rate, lr / (1 - momentum), of 0.2, 0.5, 1 and 2 and a momentum of 0, 0.5 and 0.9: twelve
runs each. Accuracies are then of the test set, trained on all 60,000 samples. *Less sync's*: by
seed, with sync at its own best. Rules have their defaults where nothing is said; *adaptive* is
`--algorithm eager` alone. It is then compared with sync under other delays, each at the pair found
above.
"""

from reproduction.common import row, say, validation_split
from reproduction.eager_setting import accuracies, by_seed, points, speedups, words, NETWORK

DELAY = "--delay", "random:300ms"
LASTING, MOMENTA = (0.2, 0.5, 1.0, 2.0), (0.0, 0.5, 0.9)
METHODS = {
    "sync": ("sync",),
    "adaptive": ("eager",),
    "quorum:4, free rounds": ("eager", "--policy", "quorum:4", "--rounds", "free"),
    "quorum:4 with look-ahead": ("eager", "--policy", "quorum:4", "--lag-comp", "lookahead"),
    "quorum:4, shared work": ("eager", "--policy", "quorum:4", "--work", "shared"),
    "K-AVG, K = 8": ("kavg", "--k", 8),
}
DELAYS = {
    "even ranks": ("--delay", "none"),
    "two random ranks, 200 and 400 ms": ("--delay", "random:200ms,400ms"),
    "rotating ramp to 350 ms": ("--delay", "rotating:350ms"),
    "one slow rank": ("--delay", "rank:0:370ms"),
    "one slow rank, shared work": ("--delay", "rank:0:370ms", "--work", "shared"),
}


def rate_of(pair):
    lasting, momentum = pair
    return round(lasting * (1 - momentum), 6)


def call(name, seed, method, pair, *delay, **options):
    """One entry for Train.many(). pair: the lasting rate and the momentum."""
    lasting, momentum = pair
    algorithm, *more = METHODS[method]
    if momentum == 0 and "--lag-comp" in more:
        more = more[:more.index("--lag-comp")]  # There is nothing to look ahead to.
    folder = "".join(c if c.isalnum() else "-" for c in f"{name}-{method}-{lasting}-{momentum}")
    return f"{folder}-{seed}", words(
        seed, algorithm, *more, *delay, rate=rate_of(pair), momentum=momentum,
        window=False, **options), NETWORK


def pairs_tuned(train, out, quick):
    """For each method the pair with the best accuracy on the validation set."""
    data = validation_split(out / "data")
    pairs = [(lasting, momentum) for lasting in LASTING for momentum in MOMENTA]
    runs = train.many({(method, pair): call("tune", 1000, method, pair, *DELAY, data=data,
                                            quick=quick)
                       for method in METHODS for pair in pairs}, may_diverge=True)

    def accuracy(method, pair):
        found = runs[method, pair]
        return found["test_accuracy"] if found else 0.0

    best = {method: max(pairs, key=lambda pair: accuracy(method, pair)) for method in METHODS}
    for method, pair in best.items():
        say(f"  {method}: --momentum {pair[1]}, --lr {rate_of(pair):g}")
    return best


def compared(name, base, runs, more=()):
    return [*more, row(f"{name}: speed over sync", None, None, speedups(base, runs), "x"),
            row(f"{name}: accuracy less sync's", None, None, points(base, runs), "points")]


def run(train, out, seeds, quick):
    best = pairs_tuned(train, out, quick)
    runs = train.many({(method, seed): call("final", seed, method, best[method], *DELAY,
                                            quick=quick)
                       for method in METHODS for seed in seeds})
    sync, rows = by_seed(runs, "sync", seeds), []
    for method, pair in best.items():
        found = by_seed(runs, method, seeds)
        text = f"{method} (momentum {pair[1]:g}, rate {rate_of(pair):g})"
        accuracy = row(f"{text}: accuracy", None, None, accuracies(found), "%")
        rows += [accuracy] if method == "sync" else compared(text, sync, found, [accuracy])
    for i, (name, delay) in enumerate(DELAYS.items()):
        calls = {(method, seed): call(f"delay{i}", seed, method, best[method],
                                      *delay[:2] if method == "sync" else delay, quick=quick)
                 for method in ("sync", "adaptive") for seed in seeds}
        runs = train.many(calls)
        rows += compared(f"adaptive, {name}", by_seed(runs, "sync", seeds),
                         by_seed(runs, "adaptive", seeds))
    return rows
