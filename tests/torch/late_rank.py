"""late_rank.py [--steps N] [--json FILE] -- what a late rank costs: DistributedDataParallel with
Gloo, and the same with a partial exchange, on four ranks of this machine. Fashion-MNIST, a network
of one hidden layer, batches of 32 a rank. A step's computation takes 30 ms (the rank sleeps for
what is left of it), and a late rank sleeps 100 ms more: another one in each step (random), or
always the last (persistent). Run by a Python that has rubato, rubato-torch and torch.

Each line: seconds of training from the first step to equal parameters on all ranks, how many times
as fast as Gloo that is, and the accuracy of the parameters on the test set.
"""

import argparse
import gzip
import json
import os
import pathlib
import random
import sys
import time

from launch import as_ranks

FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")
RANKS, BATCH, WORK, DELAY = 4, 32, 0.03, 0.1
KINDS = { # Name: policy and options of an exchange (None: Gloo), and whether work is shared.
    "random": {"gloo": (None, False), "quorum:2": ({"policy": "quorum:2"}, False),
               "adaptive": ({"policy": "adaptive"}, False)},
    "persistent": {"gloo": (None, False),
                   "quorum:2, shared work": ({"policy": "quorum:2", "rounds": "free"}, True)},
}


def idx(name, header):
    import numpy as np
    return np.frombuffer(gzip.open(FOLDER / f"{name}-ubyte.gz").read()[header:], np.uint8)


def rank_main(options):
    import torch
    import torch.distributed as dist
    from rubato_torch.ddp import PartialExchange
    from rubato_torch.sampler import SharedWorkSampler
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("gloo")
    rank = dist.get_rank()

    def images(name):
        return (torch.tensor(idx(name + "-images-idx3", 16)).view(-1, 784) / 255 - 0.286) / 0.353

    x, y = images("train"), torch.tensor(idx("train-labels-idx1", 8)).long()
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(1))
    order = order[:options.steps * RANKS * BATCH]
    x, y = x[order], y[order]
    found = []

    def batches(shared):
        if shared:
            sampler = SharedWorkSampler(x, BATCH, shuffle=False)
            yield from sampler
            sampler.leave()
        else:
            for step in range(options.steps):
                begin = (step * RANKS + rank) * BATCH
                yield slice(begin, begin + BATCH)

    def train(delays, policy, shared):
        torch.manual_seed(3)
        inner = torch.nn.Sequential(torch.nn.Linear(784, 64), torch.nn.ReLU(),
                                    torch.nn.Linear(64, 10))
        model = DistributedDataParallel(inner)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        exchange = PartialExchange(model, optimizer, **policy) if policy else None
        late = random.Random(5) # The same rank for all, in each step of theirs.
        dist.barrier()
        begin = time.monotonic()
        for rows in batches(shared):
            until = time.monotonic() + WORK
            if rank == (late.randrange(RANKS) if delays == "random" else RANKS - 1):
                until += DELAY
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x[rows]), y[rows])
            time.sleep(max(0.0, until - time.monotonic()))
            loss.backward()
            optimizer.step()
        if exchange:
            exchange.finish()
        seconds = time.monotonic() - begin
        dist.barrier()
        with torch.no_grad():
            right = inner(images("t10k")).argmax(1) == torch.tensor(idx("t10k-labels-idx1", 8))
        return seconds, 100 * right.float().mean().item()

    for delays, kinds in KINDS.items():
        gloo = None
        for name, (policy, shared) in kinds.items():
            seconds, accuracy = train(delays, policy, shared)
            gloo = gloo or seconds
            found.append({"delays": delays, "exchange": name, "seconds": seconds,
                          "speed": gloo / seconds, "accuracy": accuracy})
            if rank == 0:
                print(f"{delays:12} {name:24} {seconds:6.1f} s  {gloo / seconds:4.2f} times  "
                      f"{accuracy:.1f} %", flush=True)
    if rank == 0 and options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1))
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=200, help="of a rank")
    parser.add_argument("--json")
    options = parser.parse_args()
    if "RANK" in os.environ:
        return rank_main(options)
    return as_ranks(RANKS)


if __name__ == "__main__":
    sys.exit(main())
