"""hyperplane.py -- one late rank, on a regression of 8,192 dimensions (eager-SGD, PPoPP 2020)

8 ranks, 256 of 32,768 rows a rank and step (2,048 together), rate 0.1 with cosine decay, 512 steps;
a gradient takes 185 ms, an allreduce about 10 ms, and one rank a step, drawn at random, d more.
*Solo, own, models averaged* is the paper's: a rank takes the result of its own step, however old
its parameters get, and models are averaged now and then (here every 16 steps); its figures are
quoted second hand. The model: with c the time of a step without delay a late rank costs all of them
c + d under synchronous SGD, and each only c + d / P, its own share, under solo. *Each* applies all
finished rounds in order before the next gradient, so that models never differ and need no
averaging. Losses are of the whole training set, at the end.
"""

from reproduction.common import curve, plot_curves, row

RANKS, BATCH, STEPS = 8, 256, 512
COMPUTE_MS, REDUCE_MS = 185, 10
NETWORK = "--bandwidth", "50Mbit"  # 57 KB a rank each way: 9.2 ms.
PAPER = {200: 1.50, 300: 1.75, 400: 2.01}
OWN = "--algorithm", "eager", "--collect", "own"
FORMS = {
    "solo, own, models averaged": (*OWN, "--policy", "solo", "--model-sync-every", 16),
    "solo, own": (*OWN, "--policy", "solo"),
    "solo, each": ("--algorithm", "eager", "--policy", "solo"),
    "majority": (*OWN, "--policy", "majority"),
    "quorum:4, each": ("--algorithm", "eager", "--policy", "quorum:4"),
}


def call(name, delay_ms, seed, quick, *rule):
    return f"{name}-{delay_ms}-{seed}", [
        "--ranks", RANKS, "--model", "hyperplane", "--data", "synthetic", "--batch", BATCH,
        "--steps", STEPS // 4 if quick else STEPS, "--lr", 0.1, "--lr-schedule", "cosine",
        "--compute-time", f"{COMPUTE_MS}ms", "--delay", f"random:{delay_ms}ms", "--seed", seed,
        "--report-every", 8, *rule], NETWORK


def run(train, out, seeds, quick):
    delays = [300] if quick else list(PAPER)
    calls = {}
    for delay in delays:
        for seed in seeds:
            calls["sync", delay, seed] = call("sync", delay, seed, quick, "--algorithm", "sync")
            for name, rule in FORMS.items():
                if delay == 300 or name.startswith("solo, own"):
                    folder = "".join(c if c.isalnum() else "-" for c in name)
                    calls[name, delay, seed] = call(folder, delay, seed, quick, *rule)
    runs = train.many(calls)
    rows = []
    for name in FORMS:
        for delay in delays:
            if (name, delay, seeds[0]) not in runs:
                continue
            sync, late = ([runs[rule, delay, seed] for seed in seeds] for rule in ("sync", name))
            c = COMPUTE_MS + REDUCE_MS
            model = (c + delay) / (c + delay / RANKS) if name.startswith("solo") else None
            rows.append(row(f"{delay} ms, {name}: speed over sync",
                            PAPER[delay] if name.endswith("averaged") else None, model,
                            [a["seconds"] / b["seconds"] for a, b in zip(sync, late)], "x"))
            rows.append(row(f"{delay} ms, {name}: final loss over sync's",
                            "equal" if name.endswith("averaged") else None, None,
                            [b["final_loss"] / a["final_loss"] for a, b in zip(sync, late)], "x"))
    rows.append(row("sync: final loss", None, None,
                    [runs["sync", 300, seed]["final_loss"] for seed in seeds]))
    plot_curves(out / "loss.svg", "hyperplane, one rank 300 ms late", "seconds", "training loss",
                {name: curve(runs[name, 300, seeds[0]], "loss") for name in ("sync", *FORMS)},
                log_y=True)
    return rows
