"""hier.py -- local reductions and reduction momentum (Cong, Yang, Zhou, ICPP-W 2019)

Hier-AVG with block momentum 0.5 and a global average every 64 steps, in two groups of 4 ranks that
average every 4 steps, against K-AVG with one every 16: the paper's abstract has up to 62 % fewer
global reductions at equal validation accuracy (ImageNet). 8 ranks, Fashion-MNIST, mlp, 10 epochs,
batch 32 a rank, local momentum 0.9, weight decay 1e-4, cosine rate. Momentum makes steps longer, so
each rule has the rate that is best for it on a validation set (10,000 of the training samples, one
seed); accuracies are then of the test set, trained on all 60,000 samples. Model: global reductions
as 1 / K2.
"""

from reproduction.common import mean, row, say, validation_split

RANKS, GROUP, K, K1, K2, MOMENTUM = 8, 4, 16, 4, 64, 0.5
RATES = 0.01, 0.02, 0.05, 0.1
HIER = ("--algorithm", "hier", "--k1", K1, "--k2", K2, "--group", GROUP)
KAVG = ("--algorithm", "kavg", "--k", K)
BLOCK = ("--outer", "block", "--outer-momentum", MOMENTUM)
RULES = {
    "K-AVG": KAVG,
    "K-AVG with momentum": (*KAVG, *BLOCK),
    "Hier-AVG": HIER,
    "Hier-AVG with momentum": (*HIER, *BLOCK),
}


def call(rule, rate, data, seed, epochs):
    name = f"{rule.lower().replace(' ', '-')}-{rate}-{'final' if data is None else 'tune'}-{seed}"
    return name, ("--ranks", RANKS, "--model", "mlp", *(() if data is None else ("--data", data)),
                  "--epochs", epochs, "--batch", 32, "--lr", rate, "--momentum", 0.9,
                  "--weight-decay", 1e-4, "--lr-schedule", "cosine", "--report-every", 1000000,
                  "--seed", seed, *RULES[rule])


def rates_tuned(train, out, rates, epochs):
    """For each rule the rate with the best accuracy on the validation set."""
    data = validation_split(out / "data")
    runs = train.many({(rule, rate): call(rule, rate, data, 1000, epochs)
                       for rule in RULES for rate in rates})
    best = {rule: max(rates, key=lambda rate: runs[rule, rate]["test_accuracy"])
            for rule in RULES}
    for rule, rate in best.items():
        say(f"  {rule}: --lr {rate}")
    return best


def run(train, out, seeds, quick):
    epochs = 3 if quick else 10
    best = rates_tuned(train, out, RATES[:3] if quick else RATES, epochs)
    runs = train.many({(rule, seed): call(rule, best[rule], None, seed, epochs)
                       for rule in RULES for seed in seeds})
    of = {rule: [runs[rule, seed] for seed in seeds] for rule in RULES}
    rows = []
    for rule, each in of.items():
        rows.append(row(f"{rule}, rate {best[rule]}: accuracy", None, None,
                        [100 * r["test_accuracy"] for r in each], "%"))
        rows.append(row(f"{rule}: global, local reductions", None, None,
                        f"{mean([r['global_reductions'] for r in each]):g}, "
                        f"{mean([r['local_reductions'] for r in each]):g}"))
    for rule in "K-AVG", "K-AVG with momentum":
        hier = of["Hier-AVG with momentum"]
        rows.append(row(f"Hier-AVG with momentum over {rule}: fewer global reductions",
                        "up to 62" if rule == "K-AVG" else None, 100 * (1 - K / K2),
                        [100 * (1 - a["global_reductions"] / b["global_reductions"])
                         for a, b in zip(hier, of[rule])], "%"))
        rows.append(row(f"Hier-AVG with momentum less {rule}: accuracy, by seed", "equal", None,
                        [100 * (a["test_accuracy"] - b["test_accuracy"])
                         for a, b in zip(hier, of[rule])], "points"))
    return rows
