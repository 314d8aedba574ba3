"""judge_adaptive -- the adaptive quorum of the whole runtime against the best fixed one.

usage: judge_adaptive.py RUBATO-SIM FIRST_SEED SEEDS [RANKS [STEPS]]

A closed loop in virtual time: each rank works, commits, collects, goes on. The time of a run, from
the first step until all have drained, over that of the best quorum with hindsight, run by run.
Prints a row of a table for each kind of delay and of rounds. Not a test: it takes minutes.
"""

import json
import random
import subprocess
import sys
import tempfile

BASE_MS = 185
FAMILIES = "even exponential pareto rotating persistent switching".split()


def delay_ms(family, chance, step, rank, ranks):
    if family == "exponential":
        return chance.expovariate(1 / 150)
    if family == "pareto":  # Lomax of shape 1.5: mean 150.
        return 75 * (chance.random() ** (-1 / 1.5) - 1)
    if family == "rotating":
        return 350 * ((rank + step) % ranks) / (ranks - 1)
    if family == "persistent":
        return 2 * BASE_MS if rank == 0 else 0
    return 0


def works(family, seed, ranks, steps):
    """Of each step and rank, in microseconds."""
    chance = random.Random(f"{family} {seed}")
    now, left, slow = family, 0, 0
    for step in range(steps):
        if family == "switching":
            if left == 0:
                now = chance.choice(FAMILIES[:-1])
                left, slow = chance.randint(50, 150), chance.randrange(ranks)
            left -= 1
        yield [
            int(1000 * (BASE_MS * chance.uniform(0.95, 1.05)
                        + delay_ms(now, chance, step, (rank + ranks - slow) % ranks, ranks)))
            for rank in range(ranks)
        ]


def run(sim, family, rounds, seed, ranks, steps):
    """Adaptive over best, all over best, best k."""
    policies = ["adaptive:1", *(f"quorum:{k + 1}" for k in range(ranks))]
    with tempfile.NamedTemporaryFile("w", suffix=".trace") as trace:
        for line in works(family, seed, ranks, steps):
            trace.write(" ".join(f"{us}us" for us in line) + "\n")
        trace.flush()
        done = subprocess.run(
            [sim, "partial", "-n", str(ranks), "-t", str(steps), "-w", "0", "-s", "64",
             "--latency", "1ms", "--timeout", "1000s", "--loop", "closed", "--rounds", rounds,
             "--seed", str(seed),
             "--policy", ",".join(policies), "--skew", f"trace:{trace.name}", "--json", "-"],
            capture_output=True, text=True, check=True)
    rows = json.loads(done.stdout)["results"]
    assert all(row["wrong"] == 0 for row in rows)
    times = {row["policy"]: row["loop_us"] for row in rows}
    fixed = {k + 1: times[f"quorum:{k + 1}"] for k in range(ranks)}
    best = min(fixed, key=fixed.get)
    return times["adaptive:1"] / fixed[best], fixed[ranks] / fixed[best], best


def main():
    sim, first, seeds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ranks = int(sys.argv[4]) if len(sys.argv) > 4 else 8
    steps = int(sys.argv[5]) if len(sys.argv) > 5 else 320
    print("| delays | rounds | time / best, mean | worst seed | all | best k |")
    print("|---|---|---|---|---|---|")
    for family in FAMILIES:
        for rounds in "aligned", "free":
            got = [run(sim, family, rounds, seed, ranks, steps)
                   for seed in range(first, first + seeds)]
            mean, every, best = (sum(one[i] for one in got) / seeds for i in range(3))
            worst = max(one[0] for one in got)
            print(f"| {family} | {rounds} | {mean:.3f} | {worst:.3f} | {every:.2f} | {best:.1f} |",
                  flush=True)


if __name__ == "__main__":
    main()
