"""straggler.py -- one rank that is always three times slower

The setting is that of eager-accuracy, but rank 0 takes 370 ms more in every step. With equal shards
nothing helps: the slow rank's own steps set the time, whatever the others do. With *free* rounds
and *shared* work (ranks draw the next samples from a common counter) each rank makes as many steps
as it can. The limit is the sum of the ranks' own speeds, 1 / 185 ms and 1 / 555 ms, as if
reductions cost nothing; the model is the sequential simulation's share of it (8 ranks).
"""

from reproduction.common import row
from reproduction.eager_setting import COMPUTE_MS, accuracies, by_seed, call, gain_rows

SLOWER_MS = 370
DELAY = "--delay", f"rank:0:{SLOWER_MS}ms"
FORMS = {
    "shared work, quorum of half": ["--work", "shared", "--policy", "quorum:{half}"],
    "shared work, adaptive": ["--work", "shared"],
    "equal shards, quorum of half": ["--policy", "quorum:{half}"],
}


def limit_seconds(run, ranks):
    """Of a run with these samples, on ranks that never wait."""
    a_second = (ranks - 1) * 1e3 / COMPUTE_MS + 1e3 / (COMPUTE_MS + SLOWER_MS)
    return run["samples"] / run["batch"] / a_second


def run(train, out, seeds, quick):
    rows = []
    for ranks in (8,) if quick else (4, 8):
        calls = {("sync", s): call(f"{ranks}-sync-{s}", s, "sync", *DELAY, ranks=ranks,
                                   quick=quick) for s in seeds}
        for i, (name, options) in enumerate(FORMS.items()):
            options = [word.format(half=ranks // 2) for word in options]
            calls.update({(name, s): call(f"{ranks}-{i}-{s}", s, "eager", *DELAY, *options,
                                          ranks=ranks, quick=quick) for s in seeds})
        results = train.many(calls)
        sync = by_seed(results, "sync", seeds)
        rows.append(row(f"{ranks} ranks, sync: accuracy", None, 86.87 if ranks == 8 else None,
                        accuracies(sync), "%"))
        for name in FORMS:
            runs = by_seed(results, name, seeds)
            shared = name.startswith("shared")
            text = f"{ranks} ranks, {name}"
            rows += gain_rows(text, sync, runs, None if shared else 1.02,
                              -0.1 if shared and ranks == 8 else None)
            rows.append(row(f"{text}: share of the sum of speeds", None,
                            0.97 if shared and ranks == 8 else None,
                            [limit_seconds(r, ranks) / r["seconds"] for r in runs], ""))
    return rows
