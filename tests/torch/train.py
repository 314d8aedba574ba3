"""train.py BACKEND FILE -- an ordinary script of DistributedDataParallel, run as every rank: trains
a small network and writes its parameters."""

import hashlib
import os
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

backend, path = sys.argv[1:]
dist.init_process_group(backend)
rank, size = dist.get_rank(), dist.get_world_size()
torch.manual_seed(5)
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.BatchNorm1d(64), torch.nn.ReLU(),
                            torch.nn.Linear(64, 3))
model = DistributedDataParallel(model, bucket_cap_mb=0.005) # Several buckets in flight.
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
samples = torch.Generator().manual_seed(100 + rank)
for step in range(30):
    x = torch.randn(16, 20, generator=samples)
    y = x[:, :3].argmax(1)
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
print(f"rank {rank} loss {loss.item():.4f}",
      hashlib.sha256(flat.numpy().tobytes()).hexdigest()[:16], flush=True)
if rank == 0:
    torch.save(flat, path)
if os.environ.get("LEAVE") != "open":
    dist.destroy_process_group()
