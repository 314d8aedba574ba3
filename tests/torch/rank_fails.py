"""rank_fails.py HOW -- run as every rank of a job of three: rank 1 does something, and the others
must be told by what they have in flight. Prints what each was told, and after how long. Tensors are
on DEVICE, or else the host."""

import datetime
import os
import signal
import sys
import time

import torch
import torch.distributed as dist

how = sys.argv[1]
rank = int(os.environ["RANK"])
BOUND = 4 # Seconds; the group's timeout where one is to hold.
patient = datetime.timedelta(seconds=BOUND if how in ("absent", "late", "stopped") else 60)


def tell(words):
    print(f"{time.monotonic() - began:.1f} {words}", flush=True)


def told(name, function):
    try:
        function()
        tell(f"{name} was told nothing")
    except Exception as error:
        tell(f"{name} {type(error).__name__}: {str(error).splitlines()[0]}")


if how == "never": # It does not even come to the store, where rank 0 waits for all: longer here.
    began = time.monotonic()
    if rank != 1:
        told("init", lambda: dist.init_process_group(
            "rubato", timeout=datetime.timedelta(seconds=BOUND * (4 if rank == 0 else 1))))
    raise SystemExit
torch.set_default_device(os.environ.get("DEVICE", "cpu"))
# All are here by now, as imports may take longer than the bound.
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), 3, rank == 0)
group = {"store": store, "rank": rank, "world_size": 3, "timeout": patient}
began = time.monotonic()


def others(word):
    """Waits until the two others have said a word in the store."""
    store.wait([f"{word} 0", f"{word} 2"], datetime.timedelta(seconds=60))


if how == "absent": # It never comes to the group.
    if rank == 1:
        others("told")
        raise SystemExit
    told("init", lambda: dist.init_process_group("rubato", **group))
    store.set(f"told {rank}", "")
    if rank == 0: # The store is its own: not gone before the other one has been told.
        others("told")
    raise SystemExit
if how in ("refused", "setting", "built"): # A rank fails before others have met it.
    if rank == (0 if how == "refused" else 1):
        if how == "built":
            import rubato_torch._built
            rubato_torch._built.TORCH = "1.0"
        else:
            os.environ["RUBATO_CHUNK"] = "much"
    told("init", lambda: dist.init_process_group("rubato", **group))
    store.set(f"told {rank}", "")
    if rank == 0:
        others("told")
    raise SystemExit
if how == "gone": # Rank 0, and the store with it, while the others wait for it.
    if rank == 0:
        import rubato_torch

        def end(options, backend_options=None):
            options.store.wait(["rubato/here/1", "rubato/here/2"])
            os.kill(os.getpid(), signal.SIGKILL)

        rubato_torch._create = end
        rubato_torch.register()
    told("init", lambda: dist.init_process_group("rubato", **group))
    raise SystemExit
if how == "detail":
    dist.set_debug_level(dist.DebugLevel.DETAIL)
dist.init_process_group("rubato", **group)
x = torch.ones(1000)
dist.all_reduce(x)
dist.barrier()
began = time.monotonic()
if how == "detail": # PyTorch compares calls over a group of Gloo's before it makes them.
    told("call", lambda: dist.broadcast(x, 1) if rank == 1 else dist.all_reduce(x))
    told("next", lambda: dist.all_reduce(x))
    told("destroy", dist.destroy_process_group)
    store.set(f"told {rank}", "")
    if rank == 0:
        others("told")
    raise SystemExit
if rank == 1:
    if how in ("killed", "raises", "aborts"):
        others("begun")
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
        raise SystemExit
    elif how == "raises":
        raise ValueError("nobody catches this")
    elif how == "aborts":
        dist.group.WORLD.abort()
    elif how == "mismatch":
        told("broadcast", lambda: dist.broadcast(x, 1))
    else: # Late: it does nothing until the others have been told.
        others("told")
        os._exit(0)
    raise SystemExit
if how == "call": # A timeout of one call, and of one wait, in a patient group.
    options = dist.AllreduceOptions()
    options.timeout = datetime.timedelta(seconds=2)
    work = dist.group.WORLD.allreduce([x], options)
    told("wait", lambda: work.wait(datetime.timedelta(seconds=0.5)))
    told("work", work.wait)
elif how == "monitored":
    told("monitored", lambda: dist.monitored_barrier(timeout=datetime.timedelta(seconds=1),
                                                     wait_all_ranks=True))
    store.set(f"told {rank}", "")
    if rank == 0:
        others("told")
    os._exit(0)
else:
    works = [dist.all_reduce(x, async_op=True) for _ in range(3)]
    if how != "mismatch": # There the group may have failed by now, and it would not start.
        receive = dist.irecv(torch.empty(5), 1)
    store.set(f"begun {rank}", "")
    told("future", works[1].get_future().wait)
    for work in works:
        told("work", work.wait)
    if how != "mismatch":
        told("receive", receive.wait)
told("later call", lambda: dist.all_reduce(x))
told("destroy", dist.destroy_process_group)
store.set(f"told {rank}", "")
if rank == 0: # The store is its own.
    others("told")
