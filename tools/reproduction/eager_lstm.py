"""eager_lstm.py -- ranks whose work differs by nature: an LSTM on lines (eager-SGD, PPoPP 2020)

The paper trains an LSTM on videos of 29 to 1,776 frames, on 8 ranks, and reports 1.27x for
*majority* over synchronous SGD at equal accuracy, and 1.64x for *solo* at a lower one (quoted
second hand). Here the lines are verses of the King James Bible, 132 bytes on average with a
standard deviation of 57; a step of a rank reads one of them, and takes a time per byte (with four
the sum is less uneven). The model of the speed draws verses at random and plays the
rounds with communication that takes no time: sync waits for the longest, majority for the rank that
is drawn. Finished rounds are applied in order (--collect each), so that replicas stay equal.
Perplexity is per byte of the test lines, after equal numbers of steps (three epochs; on real ranks
one, and majority alone).
"""

import pathlib
import random
import shutil
import sys

from reproduction.common import Failed, curve, execute, plot_curves, row

RANKS = 8
VERSES = 4000  # A tenth is for the test.
FOUR_STEPS = 450
LR = 0.006  # Of 0.003 and 0.006 the better one for sync
PAPER = {"majority": 1.27, "solo": 1.64}
POLICIES = {"majority": "majority", "quorum of 4": "quorum:4", "solo": "solo"}


def TIME(real):
    return ("real ranks of this machine, their computation emulated" if real
            else "simulated: exact, in virtual time")


def verses_make(train, out, count):
    """Writes the text; its name, and the lengths of its lines with their ends."""
    if shutil.which("bible") is None:
        raise Failed("the text comes from the program bible (Debian's package bible-kjv)")
    path = out / "verses.txt"
    tool = pathlib.Path(__file__).resolve().parents[1] / "verses"
    execute([sys.executable, tool, path, count], train.limit_s)
    return path, [len(line) + 1 for line in path.read_text().split("\n") if line]


def speed_model(lengths, batch, steps=4000):
    """Speed of majority over sync: {time of sync's steps} / {time of majority's rounds}."""
    draw = random.Random(1)
    sync = opened = 0.0
    left = [0.0] * RANKS  # When each rank left the round before.
    for _ in range(steps):
        work = [sum(draw.choices(lengths, k=batch)) for _ in range(RANKS)]
        sync += max(work)
        arrived = [a + b for a, b in zip(left, work)]
        opened = max(opened, arrived[draw.randrange(RANKS)])
        left = [max(opened, arrival) for arrival in arrived]
    return sync / opened


def runs_make(train, text, seeds, steps, batch, policies):
    """{(policy, seed): run}; policy "sync" among them."""
    token = "100us/token" if train.simulate else "1ms/token"  # Cores are few.
    common = ["--ranks", RANKS, "--model", "lstm", "--data", f"text:{text}", "--batch", batch,
              "--steps", steps, "--compute-time", token, "--optimizer", "adam", "--lr", LR,
              "--lr-schedule", "cosine"]
    rules = {"sync": ["--algorithm", "sync"],
             **{name: ["--algorithm", "eager", "--policy", POLICIES[name]] for name in policies}}
    return train.many({
        (name, seed): (f"{name.replace(' ', '-')}-{batch}-{seed}",
                       [*common, *words, "--seed", seed])
        for name, words in rules.items() for seed in seeds})


def ratios(runs, name, seeds, key):
    return [runs[name, seed][key] / runs["sync", seed][key] for seed in seeds]


def speed_row(runs, name, seeds, text, paper, model):
    return row(f"{text}speed of {name} over sync", paper, model,
               [1 / ratio for ratio in ratios(runs, name, seeds, "seconds")], "x")


def rows_of(runs, policies, seeds, lengths):
    rows = []
    for name in policies:
        majority = name == "majority"
        rows.append(speed_row(runs, name, seeds, "", PAPER.get(name),
                              speed_model(lengths, 1) if majority else None))
        rows.append(row(f"test perplexity, {name} over sync", "equal accuracy" if majority else "",
                        None, ratios(runs, name, seeds, "test_perplexity"), "x"))
    rows.append(row("test perplexity of sync", None, None,
                    [runs["sync", seed]["test_perplexity"] for seed in seeds], ""))
    return rows


def run(train, out, seeds, quick):
    quick = quick or not train.simulate
    steps = 450 if quick else 1350  # An epoch of 3,600 lines has 450.
    text, lengths = verses_make(train, out, VERSES)
    policies = ["majority"] if quick else list(POLICIES)
    runs = runs_make(train, text, seeds, steps, 1, policies)
    rows = rows_of(runs, policies, seeds, lengths)
    plot_curves(out / "loss.svg", "LSTM on verses: training loss", "seconds", "loss per byte",
                {name: curve(runs[name, seeds[0]], "loss") for name in ["sync", *policies]})
    if not quick:
        four = runs_make(train, text, seeds, FOUR_STEPS, 4, ["majority"])
        rows.append(speed_row(four, "majority", seeds, "four verses a step: ", None,
                              speed_model(lengths, 4)))
    return rows
