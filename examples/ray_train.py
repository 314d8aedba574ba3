"""ray_train.py -- the script of docs/guide-pytorch.md under Ray Train, which is given the name of
the backend.

    python examples/ray_train.py [WORKERS]
"""

import sys

import ray.train.torch
import torch
import torch.distributed as dist
from ray.train import ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer


def train():
    torch.manual_seed(0)
    model = ray.train.torch.prepare_model(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(100):
        x = torch.randn(32, 8, generator=generator)
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(f"rank {dist.get_rank()} of {dist.get_world_size()} by {dist.get_backend()}: "
          f"loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    workers = int(sys.argv[1]) if len(sys.argv) > 1 else 4
    TorchTrainer(train, scaling_config=ScalingConfig(num_workers=workers),
                 torch_config=TorchConfig(backend="rubato")).fit()
