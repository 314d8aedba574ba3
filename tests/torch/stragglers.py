"""stragglers.py FOLDER [--quick] [OPTION...] -- what partial exchange gains where ranks are late,
at which accuracy, beside DistributedDataParallel with Gloo. Run by a Python that has rubato,
rubato-torch and torch, on a machine that does nothing else.

Fashion-MNIST, a network of one hidden layer of 64, batches of 32 a rank, weight decay 1e-4, rates
that fall as a cosine. A step's computation is made to take 30 ms, and a late rank sleeps 100 ms
more: another rank in each step, in turns (rotating) or drawn (random), or always the last
(persistent; there the ranks of the partial exchange share the work).

Each method has its own best rate and momentum, found with the same effort: twelve runs, a lasting
rate lr / (1 - momentum) of .2, .5, 1 and 2 and a momentum of 0, .5 and .9, one seed, by the
accuracy on 6,000 of the 60,000 training samples. DDP waits for all ranks, so its parameters do not
depend on who is late: it is tuned once, without sleeping. With the best pair each method is then
trained on the other 54,000 with other seeds, and its accuracy is that on the test set.

FOLDER gets runs.jsonl (a line as each run ends: one that is broken off goes on from there, with the
same options), results.json and stragglers.svg (with matplotlib). Exits 1 if an aim is missed:
rotating and random 1.5 times as fast, persistent 2 times, each at most 0.3 points below Gloo.
"""

import argparse
import json
import math
import os
import pathlib
import random
import statistics
import sys
import time

from late_rank import idx
from launch import as_ranks

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools"))

LASTING, MOMENTA = (0.2, 0.5, 1.0, 2.0), (0.0, 0.5, 0.9)
BATCH, DECAY, TUNING_SEED, VALIDATION = 32, 1e-4, 1000, 6000
AIMS = {"rotating": 1.5, "random": 1.5, "persistent": 2.0}
AIM_POINTS = 0.3
GLOO, PARTIAL = "gloo", "partial"


def plan_of_tuning(options):
    """Runs: who is late (nobody: none sleeps), method, lasting rate, momentum, seed."""
    pairs = [(lasting, momentum) for lasting in LASTING for momentum in MOMENTA]
    if options.quick:
        pairs = pairs[4:6]
    return [(late, method, *pair, TUNING_SEED) for late, method in
            [("nobody", GLOO), *((late, PARTIAL) for late in AIMS)] for pair in pairs]


def best_of(runs, late, method):
    if method == GLOO:
        late = "nobody"
    tuned = {key: run for key, run in runs.items()
             if key[:2] == (late, method) and key[4] == TUNING_SEED}
    return max(tuned, key=lambda key: tuned[key]["validation"])[2:4]


def plan_of_results(options, runs):
    return [(late, method, *best_of(runs, late, method), seed) for seed in range(options.seeds)
            for late in AIMS for method in (GLOO, PARTIAL)]


class Data:
    def __init__(self, options):
        import torch

        def images(name):
            return (torch.tensor(idx(name + "-images-idx3", 16)).view(-1, 784) / 255
                    - 0.286) / 0.353

        x, y = images("train"), torch.tensor(idx("train-labels-idx1", 8)).long()
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
        kept, held_out = order[VALIDATION:], order[:VALIDATION]
        if options.quick:
            kept = kept[:options.ranks * BATCH * 12]
        self.train = x[kept], y[kept]
        self.validation = x[held_out], y[held_out]
        self.test = images("t10k"), torch.tensor(idx("t10k-labels-idx1", 8)).long()


class Lateness:
    """Seconds that a rank sleeps in each of its steps besides computing."""

    def __init__(self, late, rank, options, seed):
        self.late, self.rank, self.options = late, rank, options
        self.draw = random.Random(seed) # The same for all ranks.

    def __call__(self, step):
        who = {"rotating": step % self.options.ranks, "persistent": self.options.ranks - 1,
               "random": self.draw.randrange(self.options.ranks)}[self.late]
        return self.options.delay if who == self.rank else 0.0


def batches(data, options, rank, seed, shared):
    import torch
    from rubato_torch.sampler import SharedWorkSampler
    x = data.train[0]
    if shared:
        sampler = SharedWorkSampler(x, BATCH, seed=seed)
        for _ in range(options.epochs):
            yield from sampler
        sampler.leave()
        return
    steps = len(x) // (options.ranks * BATCH)
    for epoch in range(options.epochs):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed * 100 + epoch))
        for step in range(steps):
            yield order[(step * options.ranks + rank) * BATCH:][:BATCH]


def train(data, options, rank, key):
    """One run on all ranks: seconds until all have the same parameters, and their accuracy."""
    import torch
    import torch.distributed as dist
    from rubato_torch.ddp import PartialExchange
    from torch.nn.parallel import DistributedDataParallel

    late, method, lasting, momentum, seed = key
    x, y = data.train
    total = options.epochs * (len(x) // (options.ranks * BATCH))
    rate = lasting * (1 - momentum)
    sleeps = None if late == "nobody" else Lateness(late, rank, options, seed)
    shared = late == "persistent" and method == PARTIAL

    def rate_at(step):
        return rate * 0.5 * (1 + math.cos(math.pi * min(step / total, 1.0)))

    torch.manual_seed(seed)
    inner = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(),
                                torch.nn.Linear(64, 10))
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=momentum,
                                weight_decay=DECAY)
    exchange = None
    if method == PARTIAL:
        exchange = PartialExchange(model, optimizer, policy=options.policy, rounds="free",
                                   rate=rate_at)
    dist.barrier()
    begin = time.monotonic()
    for step, rows in enumerate(batches(data, options, rank, seed, shared)):
        until = time.monotonic() + options.work + sleeps(step) if sleeps else 0.0
        if exchange is None:
            for group in optimizer.param_groups:
                group["lr"] = rate_at(step)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
        time.sleep(max(0.0, until - time.monotonic()))
        loss.backward()
        optimizer.step()
    if exchange is not None:
        exchange.finish()
    seconds = time.monotonic() - begin
    dist.barrier()

    def accuracy(x, y):
        with torch.no_grad():
            return 100 * (inner(x).argmax(1) == y).float().mean().item()

    return {"seconds": seconds, "validation": accuracy(*data.validation),
            "test": accuracy(*data.test), "steps": total, "updates":
            exchange.updates if exchange is not None else total}


class Progress:
    """Says what has ended, and how long the rest will take: as long as equal runs have taken, or
    as the sleeping will."""

    def __init__(self, options, steps):
        self.options, self.steps = options, steps

    def guess(self, runs, key):
        like = [run["seconds"] for other, run in runs.items() if other[:2] == key[:2]]
        late = 0.02 if key[0] == "nobody" else self.options.work + self.options.delay * (
            1.0 if key[1] == GLOO else 0.4 if key[0] != "persistent" else 0.1)
        return statistics.mean(like) if like else self.steps * late

    def say(self, runs, done, plan, key):
        left = sum(self.guess(runs, other) for other in plan if other not in runs)
        late, method, lasting, momentum, seed = key
        run = runs[key]
        print(f"{done}: {late}, {method}, lr {lasting * (1 - momentum):.3g}, momentum {momentum}, "
              f"seed {seed}: {run['seconds']:.1f} s, validation {run['validation']:.2f} %, test "
              f"{run['test']:.2f} %; about {left / 60:.0f} min of this part left", flush=True)


def runs_of(path, options):
    """What is there of runs with the same options."""
    runs = {}
    if path.exists():
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            if entry["options"] != options:
                raise SystemExit(f"{path}: runs with other options: {entry['options']}")
            runs[tuple(entry["key"])] = entry["run"]
    return runs


def rank_main(options):
    import torch.distributed as dist

    dist.init_process_group("gloo")
    rank, folder = dist.get_rank(), pathlib.Path(options.folder)
    data = Data(options)
    said = {name: value for name, value in vars(options).items() if name != "folder"}
    path = folder / "runs.jsonl"
    runs = runs_of(path, said)
    dist.barrier() # All have read it.
    progress = Progress(options, options.epochs * len(data.train[0]) // (options.ranks * BATCH))

    def go_through(plan):
        for number, key in enumerate(plan):
            if key in runs:
                continue
            got = [train(data, options, rank, key)] # Rank 0's, as all have the same parameters.
            dist.broadcast_object_list(got, 0)
            runs[key] = got[0]
            if rank == 0:
                with path.open("a") as file:
                    file.write(json.dumps({"options": said, "key": key, "run": got[0]}) + "\n")
                progress.say(runs, f"{number + 1}/{len(plan)}", plan, key)

    go_through(plan_of_tuning(options))
    plan = plan_of_results(options, runs)
    go_through(plan)
    good = True
    if rank == 0:
        good = report(options, folder, {key: runs[key] for key in plan}, said)
    dist.barrier()
    dist.destroy_process_group()
    return 0 if good else 1


def spread(values):
    return statistics.stdev(values) if len(values) > 1 else 0.0


def report(options, folder, runs, said):
    results, points = [], {}
    for late, aim in AIMS.items():
        by_seed = {key[1::3]: (key, run) for key, run in runs.items() if key[0] == late}
        pairs = [(by_seed[GLOO, seed], by_seed[PARTIAL, seed]) for seed in range(options.seeds)]
        speed = [gloo["seconds"] / own["seconds"] for (_, gloo), (_, own) in pairs]
        less = [own["test"] - gloo["test"] for (_, gloo), (_, own) in pairs]
        entry = {"late": late, "speed": statistics.mean(speed), "speed_spread": spread(speed),
                 "points": statistics.mean(less), "points_spread": spread(less),
                 "aim": aim, "rates": {}, "accuracy": {}}
        for which, method in enumerate((GLOO, PARTIAL)):
            key = pairs[0][which][0]
            entry["rates"][method] = {"lr": key[2] * (1 - key[3]), "momentum": key[3]}
            entry["accuracy"][method] = statistics.mean(p[which][1]["test"] for p in pairs)
        entry["reached"] = entry["speed"] >= aim and entry["points"] >= -AIM_POINTS
        results.append(entry)
        points[late] = list(zip(speed, less))
        verdict = f"aims {aim} and -{AIM_POINTS}: {'reached' if entry['reached'] else 'missed'}"
        print(f"{late:12} {entry['speed']:.2f} ± {entry['speed_spread']:.2f} times as fast, "
              f"{entry['points']:+.2f} ± {entry['points_spread']:.2f} points; "
              f"{'too few steps to say anything' if options.quick else verdict}", flush=True)
    (folder / "results.json").write_text(json.dumps({"options": said, "results": results,
                                                     "load": os.getloadavg()}, indent=1))
    from reproduction.common import plot_curves
    plot_curves(folder / "stragglers.svg", "Partial exchange beside DDP with Gloo, by seed",
                "times as fast", "accuracy, points above Gloo's", points, points=True,
                lines=False)
    return options.quick or all(entry["reached"] for entry in results)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split(" -- ")[1].split("\n")[0])
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--quick", action="store_true",
                        help="a few steps of each, to see that it works; no aims")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--work", type=float, default=0.03, help="seconds of a step's computation")
    parser.add_argument("--delay", type=float, default=0.1, help="seconds more of a late rank")
    parser.add_argument("--policy", default="adaptive", help="of the partial exchange")
    options = parser.parse_args()
    if options.quick:
        options.epochs, options.seeds = 1, 2
        options.work, options.delay = options.work / 3, options.delay / 3
    return options


def main():
    options = arguments()
    pathlib.Path(options.folder).mkdir(parents=True, exist_ok=True)
    if "RANK" in os.environ:
        return rank_main(options)
    return as_ranks(options.ranks)


if __name__ == "__main__":
    sys.exit(main())
