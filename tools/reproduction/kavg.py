"""kavg.py -- far fewer reductions at no lower accuracy (K-AVG; Cong, Yang, Zhou, ICPP-W 2019)

Where synchronous SGD overfits, ranks that meet seldom lose nothing: each takes K steps of its own,
and all go on from the mean of their models. 12,000 samples of Fashion-MNIST, mlp, 80 epochs, batch
32 a rank, cosine rate; SGD with rate 0.02, momentum 0.9 and weight decay 1e-4, Adam with rate 2e-3.
K = 256; the average at the end counts. The paper's claim (its abstract, 6 GPUs) is for larger
models.
"""

from reproduction.common import mean, row
from reproduction.fashion_part import part

ROWS, EPOCHS, BATCH, K = 12000, 80, 32, 256
OPTIMIZERS = {
    "SGD": ("--lr", 0.02, "--momentum", 0.9, "--weight-decay", 1e-4),
    "Adam": ("--optimizer", "adam", "--lr", 2e-3),
}
RULES = {"sync": ("--algorithm", "sync"), "K-AVG": ("--algorithm", "kavg", "--k", K)}


def calls_of(data, settings, seeds):
    return {
        (ranks, optimizer, rule, seed): (f"{rule.lower()}-{optimizer.lower()}-{ranks}-{seed}", (
            "--ranks", ranks, "--model", "mlp", "--data", data, "--epochs", EPOCHS,
            "--batch", BATCH, "--lr-schedule", "cosine", "--report-every", 1000000,
            "--seed", seed, *OPTIMIZERS[optimizer], *RULES[rule]))
        for ranks, optimizer in settings for rule in RULES for seed in seeds
    }


def run(train, out, seeds, quick):
    settings = [(6, "SGD")] if quick else [(6, "SGD"), (8, "SGD"), (8, "Adam")]
    runs = train.many(calls_of(part(out / "data", ROWS), settings, seeds))
    rows = []
    for ranks, optimizer in settings:
        sync, kavg = ([runs[ranks, optimizer, rule, seed] for seed in seeds] for rule in RULES)
        title = f"{ranks} ranks, {optimizer}"
        steps = ROWS // (ranks * BATCH) * EPOCHS
        fewer = [100 * (1 - b["global_reductions"] / a["global_reductions"])
                 for a, b in zip(sync, kavg)]
        rows += [
            row(f"{title}: reductions of sync", None, steps,
                mean([a["global_reductions"] for a in sync])),
            row(f"{title}: fewer with K = {K}", "over 99" if ranks == 6 else None,
                100 * (1 - -(-steps // K) / steps), fewer, "%"),
            row(f"{title}: accuracy, sync", None, None,
                [100 * a["test_accuracy"] for a in sync], "%"),
            row(f"{title}: accuracy, K-AVG", None, None,
                [100 * b["test_accuracy"] for b in kavg], "%"),
        ]
        gains = [100 * (b["test_accuracy"] - a["test_accuracy"]) for a, b in zip(sync, kavg)]
        rows += [
            row(f"{title}: K-AVG's accuracy less sync's", "not lower", None, gains, "points"),
            row(f"{title}: seeds in which it is not lower", None, None,
                f"{sum(gain >= 0 for gain in gains)} of {len(seeds)}"),
        ]
    return rows
