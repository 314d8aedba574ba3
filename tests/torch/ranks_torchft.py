"""ranks_torchft.py GROUP -- replicas under torchft's manager: rank 2 is killed after three steps of
three replicas, and rank 3 joins when the others have gone on without it. They drop the step that
failed, and all end with the same parameters. GROUP: rubato, or gloo, which is torchft's own."""

import datetime
import os
import signal
import sys

import torch
import torchft
from torch.distributed import TCPStore
from torchft.coordination import LighthouseServer
from torchft.ddp import DistributedDataParallel

rank = int(os.environ["RANK"])
limit = datetime.timedelta(seconds=60)
store = TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=rank == 0,
                 timeout=limit)
if rank == 0:
    lighthouse = LighthouseServer(bind="127.0.0.1:0", min_replicas=2, join_timeout_ms=1000,
                                  heartbeat_timeout_ms=2000)
    store.set("lighthouse", lighthouse.address())
store.wait(["lighthouse"] + (["went on"] if rank == 3 else []), limit)

if sys.argv[1] == "rubato":
    from rubato_torch.torchft import ProcessGroupRubato as Group
else:
    from torchft import ProcessGroupGloo as Group
own = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
torch.manual_seed(rank) # What rank 0 begins with is sent to the others.
plain = torch.nn.Linear(8, 1)
group = Group(timeout=datetime.timedelta(seconds=20))


def load(state):
    plain.load_state_dict(state)


manager = torchft.Manager(
    pg=group, min_replica_size=2, load_state_dict=load, state_dict=plain.state_dict,
    replica_id=f"replica{rank}", store_addr="127.0.0.1", store_port=own.port, rank=0,
    world_size=1, lighthouse_addr=store.get("lighthouse").decode(), hostname="127.0.0.1",
    use_async_quorum=False, timeout=limit, quorum_timeout=limit)
model = DistributedDataParallel(manager, plain)
optimizer = torchft.Optimizer(manager, torch.optim.SGD(plain.parameters(), lr=0.05))
dropped, sizes, last = 0, [], None
while last is None or manager.current_step() < last:
    step = manager.current_step()
    optimizer.zero_grad()
    x = torch.randn(32, 8)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    if rank == 2 and sizes.count(3) == 3:
        os.kill(os.getpid(), signal.SIGKILL) # The others are in this step, or will be.
    loss.backward()
    optimizer.step()
    if manager.errored():
        dropped += 1
        print("dropped:", str(manager.errored()).splitlines()[0], flush=True)
        continue
    sizes.append(manager.num_participants())
    if rank == 0 and dropped and sizes[-5:] == [2] * 5 and not store.check(["went on"]):
        store.set("went on", "")
    if rank == 3 and len(sizes) == 1: # The others cannot be two steps further without it.
        store.set("last", str(manager.current_step() + 20))
    if last is None and store.check(["last"]):
        last = int(store.get("last"))
total = sum(p.detach().double().sum().item() for p in plain.parameters())
print(f"rank {rank} step {manager.current_step()} sizes {sizes[:4]} to {sizes[-4:]} loss "
      f"{loss.item():.4f} parameters {total}", flush=True)
store.set(f"done {rank}", "")
if rank == 0: # The store and the lighthouse are its own.
    store.wait(["done 1", "done 3"], limit)
manager.shutdown(wait=False)
