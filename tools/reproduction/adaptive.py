"""adaptive.py -- the adaptive quorum, free to choose from 1 on, against the best fixed one

The setting is that of eager-accuracy, under several kinds of delay. For each the fixed quorums 1,
2, 4, 6 and 8 are run beside the adaptive rule, which knows none of this in advance and here may
choose any quorum (adaptive:1; by default none below half the ranks, see *headline*), in aligned
rounds where nothing is said: once with look-ahead, and once without (--lag-comp none), which
changes nothing about time. *Time*: that
of the adaptive rule over that of the fastest fixed quorum, chosen with hindsight (the aim is at
most 1.10). *Accuracy* is compared with that of synchronous SGD and of the fastest fixed quorum.
"""

from reproduction.common import mean, row
from reproduction.eager_setting import by_seed, call, points

QUORUMS = 1, 2, 4, 6, 8
ALIGNED = "--rounds", "aligned"
DELAYS = {
    "even ranks": ["--delay", "none", *ALIGNED],
    "one random rank, 300 ms": ["--delay", "random:300ms", *ALIGNED],
    "two random ranks, 200 and 400 ms": ["--delay", "random:200ms,400ms", *ALIGNED],
    "rotating ramp to 350 ms": ["--delay", "rotating:350ms", *ALIGNED],
    "rotating ramp, free rounds": ["--delay", "rotating:350ms", "--rounds", "free"],
    "one slow rank": ["--delay", "rank:0:370ms", *ALIGNED],
    "one slow rank, shared work": ["--delay", "rank:0:370ms", "--work", "shared"],
}
ANY = ["--policy", "adaptive:1"]
FORMS = {**{str(k): ["--policy", f"quorum:{k}"] for k in QUORUMS}, "adaptive": ANY,
         "plain": [*ANY, "--lag-comp", "none"]}


def run(train, out, seeds, quick):
    rows = []
    for i, (name, delay) in enumerate(DELAYS.items()):
        calls = {("sync", s): call(f"{i}-sync-{s}", s, "sync", *delay[:2], quick=quick)
                 for s in seeds}
        for form, options in FORMS.items():
            calls.update({(form, s): call(f"{i}-{form}-{s}", s, "eager", *delay, *options,
                                          quick=quick) for s in seeds})
        results = train.many(calls)
        found = {form: by_seed(results, form, seeds) for form in ("sync", *FORMS)}
        best = min(map(str, QUORUMS), key=lambda k: mean([r["seconds"] for r in found[k]]))
        times = [a["seconds"] / b["seconds"] for a, b in zip(found["adaptive"], found[best])]
        speeds = [a["seconds"] / b["seconds"] for a, b in zip(found["sync"], found["adaptive"])]
        rows += [
            row(f"{name}: time over that of quorum:{best}", None, None, times, "x"),
            row(f"{name}: speed over sync", None, None, speeds, "x"),
            row(f"{name}: accuracy minus sync's", None, None,
                points(found["sync"], found["adaptive"]), "points"),
            row(f"{name}: the same without look-ahead", None, None,
                points(found["sync"], found["plain"]), "points"),
            row(f"{name}: accuracy minus quorum:{best}'s", None, None,
                points(found[best], found["adaptive"]), "points"),
        ]
    return rows
