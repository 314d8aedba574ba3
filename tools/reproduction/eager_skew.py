"""eager_skew.py -- partial allreduces under linear skew (eager-SGD, PPoPP 2020, micro-benchmark)

Rank r of P calls r D late (D = 1 ms; 5 ms on real ranks), in each iteration anew; what counts is
the time in the call, mean of the ranks. An allreduce makes all wait for the last one, (P - 1) D / 2
on average. *Majority* waits for one rank, drawn anew each round: (P + 1) (P - 1) D / (6 P), so that
the ratio is 3 P / (P + 1). *Solo* waits for nobody: its ratio grows with the skew and has no limit.
Models with *fixed cost* add the time of a round without skew, measured in the same way, for those
ranks that are in the call while it runs: all of an allreduce, (P + 1) / 2 of a majority, one of a
solo (they leave out that who opens a round must wake the others first). Fresh contributors of a
call: (P + 1) / 2 and 1. The paper's figures (32 ranks, skew from 1 to 32 ms) are quoted second
hand.
"""

import json

from reproduction.common import execute, mean, plot_curves, row, say

STEP_MS = {True: 1.0, False: 5.0}  # D, simulated or real: from one rank to the next.
PAPER = {"ranks": 32, "majority": 2.46, "solo": 53.32}
POLICIES = "solo", "majority"


def TIME(real):
    return "real ranks of this machine" if real else "rubato-sim: exact, in virtual time"


def measure(train, out, ranks, skewed, iterations, seed):
    """{policy: (microseconds in the call, fresh contributors)}; the plain allreduce among them."""
    program = train.tool("rubato-sim" if train.simulate else "rubato-bench")
    skew = f"linear:{STEP_MS[train.simulate] * (ranks - 1):g}ms" if skewed else "none"
    found = out / f"{ranks}-{'skew' if skewed else 'even'}-{seed}.json"
    command = [program, "partial", "-n", ranks, "-s", "4K", "--policy", ",".join(POLICIES),
               "--skew", skew, "-t", iterations, "--seed", seed, "--json", found]
    execute(command, train.limit_s)
    train.commands.append(" ".join(map(str, command)))
    results = json.loads(found.read_text())["results"]
    assert not any(result["wrong"] for result in results), found
    return {r["policy"]: (r["in_call_us"]["mean"], r["fresh_mean"]) for r in results}


def rows_of(ranks, step_us, skewed, even):
    """`skewed`, `even`: what measure() gave, for each seed."""
    wait = {"allreduce": (ranks - 1) * step_us / 2, "solo": 0.0,
            "majority": (ranks**2 - 1) * step_us / (6 * ranks)}
    inside = {"allreduce": 1.0, "solo": 1 / ranks, "majority": (ranks + 1) / (2 * ranks)}
    fixed = {policy: mean([found[policy][0] for found in even]) for policy in wait}
    full = {policy: wait[policy] + inside[policy] * fixed[policy] for policy in wait}
    paper = PAPER if ranks == PAPER["ranks"] else {}
    rows = []
    for policy, fresh in ("majority", (ranks + 1) / 2), ("solo", 1.0):
        ratios = [found["allreduce"][0] / found[policy][0] for found in skewed]
        limit = 3 * ranks / (ranks + 1) if policy == "majority" else None
        text = f"{ranks} ranks, allreduce over {policy}"
        rows.append(row(text, f"about {paper[policy]}" if paper else None, limit, ratios, "x"))
        rows.append(row(f"{text}, with fixed cost", None,
                        full["allreduce"] / full[policy], ratios, "x"))
        rows.append(row(f"{ranks} ranks, {policy}: fresh contributors", None, fresh,
                        [found[policy][1] for found in skewed], "ranks"))
    return rows


def run(train, out, seeds, quick):
    iterations = 2000 if train.simulate and not quick else 400 if train.simulate else 200
    rows, points = [], {f"over {policy}": [] for policy in POLICIES}
    for ranks in (4, 8, 16, 32) if train.simulate else (2, 4):
        if quick and ranks > 8:
            continue
        say(f"  {ranks} ranks")
        skewed, even = ([measure(train, out, ranks, flag, iterations, seed) for seed in seeds]
                        for flag in (True, False))
        rows += rows_of(ranks, 1e3 * STEP_MS[train.simulate], skewed, even)
        for policy in POLICIES:
            ratio = mean([found["allreduce"][0] / found[policy][0] for found in skewed])
            points[f"over {policy}"].append((ranks, ratio))
    points["3 P / (P + 1)"] = [(ranks, 3 * ranks / (ranks + 1))
                               for ranks, _ in points["over majority"]]
    plot_curves(out / "ratio.svg", "time in the call under linear skew", "ranks",
                "allreduce / partial allreduce", points, log_y=True, points=True)
    return rows
