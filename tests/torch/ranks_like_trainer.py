"""ranks_like_trainer.py -- run as every rank of four: jobs of rubato-train, made anew by
rubato_torch from the same data and first parameters: the same last parameters, to the rounding of
float32, and the same ledgers."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.distributed as dist
from rubato_torch.averaging import (AdaptivePeriodModelAverager, DecoupledModelAverager,
                                    HierarchicalModelAverager, PeriodicModelAverager)
from rubato_torch.ddp import LaggedExchange, PartialExchange
from torch.nn.parallel import DistributedDataParallel

STEPS, BATCH, LR, HIDDEN, FEATURES, CLASSES = 26, 8, 0.1, 12, 6, 3
JOBS = ( # Words for rubato-train; what does it here; momentum, decay.
    ("sync", PartialExchange, {"policy": "quorum:4"}, 0.9, 1e-3),
    ("eager --policy quorum:4 --normalise contributors --clip 0.05", PartialExchange,
     {"policy": "quorum:4", "normalise": "contributors", "max_norm": 0.05}, 0.5, 0),
    ("eager --policy quorum:4 --rounds free --full-every 2", PartialExchange,
     {"policy": "quorum:4", "rounds": "free", "full_every": 2}, 0, 1e-2),
    ("laga", LaggedExchange, {}, 0, 0),
    ("laga --lag 2 --accumulate 3 --first-step zero --rate-by-count", LaggedExchange,
     {"lag": 2, "accumulate": 3, "first_step": "zero", "rate_by_count": True}, 0.5, 1e-2),
    ("laga --lag-comp lookahead", LaggedExchange, {"lag_comp": "lookahead"}, 0.9, 0),
    ("laga --lag 2 --accumulate 3 --rate-by-count --lag-comp lookahead", LaggedExchange,
     {"lag": 2, "accumulate": 3, "rate_by_count": True, "lag_comp": "lookahead"}, 0.5, 1e-2),
    ("kavg --k 5", PeriodicModelAverager, {"period": 5}, 0.9, 0),
    ("kavg --k 4 --outer block --outer-gain 1-mu --outer-momentum 0.6 --opt-state average",
     PeriodicModelAverager, {"period": 4, "outer": "block", "outer_gain": "1-mu",
                             "outer_momentum": 0.6, "opt_state": "average"}, 0.9, 0),
    ("kavg --k 4 --outer slowmo --outer-lr 0.8 --opt-state reset", PeriodicModelAverager,
     {"period": 4, "outer": "slowmo", "outer_lr": 0.8, "opt_state": "reset"}, 0.9, 0),
    ("kavg --k 3 --outer nesterov", PeriodicModelAverager, {"period": 3, "outer": "nesterov"},
     0, 0),
    ("local --k 4 --outer nesterov", PeriodicModelAverager,
     {"period": 4, "outer": "nesterov", "outer_lr": 0.7, "outer_momentum": 0.9,
      "nesterov_base": "shifted"}, 0.5, 0),
    ("local --k 4 --pull 0.6", DecoupledModelAverager, {"period": 4, "pull": 0.6}, 0.9, 0),
    ("local --k 3 --pull 0.5 --outer block --outer-momentum 0.4 --outer-gain 1-mu "
     "--opt-state reset", DecoupledModelAverager,
     {"period": 3, "pull": 0.5, "outer": "block", "outer_momentum": 0.4, "outer_gain": "1-mu",
      "opt_state": "reset"}, 0.5, 0),
    # It ends after an average: the one that a run with more steps would begin is not.
    ("local --k 13 --pull 0.5 --outer slowmo", DecoupledModelAverager,
     {"period": 13, "pull": 0.5, "outer": "slowmo"}, 0.9, 0),
    ("hier --k1 2 --k2 6 --group 2 --outer block", HierarchicalModelAverager,
     {"k1": 2, "k2": 6, "group_size": 2, "outer": "block"}, 0.5, 0),
    ("adpsgd --period 2 --adapt-sample-steps 6", AdaptivePeriodModelAverager,
     {"period": 2, "sample_steps": 6}, 0.5, 0),
)

dist.init_process_group("rubato")
rank, size = dist.get_rank(), dist.get_world_size()
random = np.random.default_rng(7)
data = random.standard_normal((size * BATCH * STEPS, FEATURES)).astype(np.float32)
labels = (data[:, :CLASSES] + data[:, CLASSES:]).argmax(1)
first = random.standard_normal(HIDDEN * (FEATURES + 1) +
                               CLASSES * (HIDDEN + 1)).astype(np.float32) / 3


def rate(step):
    return LR * (1.0 - step / STEPS) # The schedule "linear".


def trained(folder, kind, options, momentum, decay):
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, HIDDEN), torch.nn.ReLU(),
                                torch.nn.Linear(HIDDEN, CLASSES))
    inner, exchange = model, kind in (PartialExchange, LaggedExchange)
    if rank == 0: # The others are told.
        torch.nn.utils.vector_to_parameters(torch.from_numpy(first.copy()), model.parameters())
    if exchange:
        model = DistributedDataParallel(model, bucket_cap_mb=0.0002)
        options = {**options, "rate": rate}
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=momentum, weight_decay=decay)
    way = kind(model, optimizer, ledger=folder / "ledger", **options)
    for step in range(STEPS):
        rows = slice((step * size + rank) * BATCH, (step * size + rank + 1) * BATCH)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(torch.from_numpy(data[rows])),
                                          torch.from_numpy(labels[rows])).backward()
        if exchange:
            optimizer.step()
        else:
            optimizer.param_groups[0]["lr"] = rate(step)
            optimizer.step()
            way.step()
    way.finish()
    last = torch.nn.utils.parameters_to_vector(inner.parameters()).detach().numpy()
    every = [None] * size
    dist.all_gather_object(every, last.tobytes())
    assert len(set(every)) == 1, "the ranks end apart"
    return last


def by_rubato_train(folder, words, momentum, decay):
    options = {"model": "mlp", "hidden": HIDDEN, "data": f"npy:{folder}", "batch": BATCH,
               "steps": STEPS, "lr": LR, "lr-schedule": "linear", "momentum": momentum,
               "weight-decay": decay, "init": folder / "init.npy", "out": folder / "out"}
    program = pathlib.Path(sys.executable).with_name("rubato-train")
    bare = {name: value for name, value in os.environ.items()
            if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")}
    subprocess.run([program, "--simulate", "--ranks", str(size), "--no-shuffle", "--no-report",
                    "--quiet", "--algorithm", *words.split(),
                    *(f"--{name}={value}" for name, value in options.items())],
                   check=True, env=bare, stdout=subprocess.DEVNULL, timeout=60)
    return np.load(folder / "out/final.npy")


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def same_ledger(ours, theirs, free):
    """Free rounds begin with one that all drain in, and there may be an empty one after it."""
    assert len(ours) == len(theirs), (len(ours), len(theirs))
    for mine, other in zip(ours, theirs):
        for key in other.keys() - {"applied", "rate", "round" if free else ""}:
            assert mine[key] == other[key], (key, mine, other)
        assert mine.get("round", 0) - other.get("round", 0) in (0, 1)
        assert abs(mine.get("rate", 0) - other.get("rate", 0)) < 1e-9, (mine, other)


for words, kind, options, momentum, decay in JOBS:
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        ours = trained(folder, kind, options, momentum, decay)
        if rank > 0:
            continue
        for what, array in (("x", data), ("y", labels), ("init", first)):
            np.save(folder / what, array)
        theirs = by_rubato_train(folder, words, momentum, decay)
        moved, apart = np.abs(theirs - first).max(), np.abs(ours - theirs).max()
        print(f"{words}: {apart / moved:.1e} of {moved:.3f}")
        assert moved > 0.01 and apart < 5e-6 * moved, words
        same_ledger(lines(folder / "ledger"), lines(folder / "out/ledger.jsonl"),
                    options.get("rounds") == "free")
        periods = {line["period"] for line in lines(folder / "ledger")[:-1] if "period" in line}
        assert kind is not AdaptivePeriodModelAverager or len(periods) > 1, periods
dist.destroy_process_group()
