"""speed.py [--ranks N] [--hosts H --rate B] [--seconds S] [--sizes BYTES] [--models COUNTS]
[--device cuda [--library]] [--quick] [--json FILE] -- how long torch.distributed takes with Rubato
and with Gloo: allreduce of float32, sum, and a backward pass of DistributedDataParallel whose model
computes next to nothing. Run by a Python that has rubato, rubato-torch and torch.

With --hosts the ranks are on that many hosts, N / H on each: network namespaces of tools/testbed,
with links of that rate between them (so it needs root; exit status 77 where they cannot be made).

The same ranks do it all, in turns of some calls each, so that what else the machine does meets all
alike; a call is timed by itself, on rank 0. "C" is the library's own call, with its arguments made
before: what is above it, PyTorch and Python add (and some 0.3 us of cffi's are in it). DDP: the
time of a backward pass less that of one without communication. Medians, and in brackets the
quarters' bounds, microseconds.

With --device cuda all tensors are the one device's that all ranks share, and a call lasts until the
device has nothing to do. "C" is there with --library only, then: the library's own way to device
memory.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

from launch import as_ranks

SIZES = "8,1048576,16777216"
TESTBED = pathlib.Path(__file__).resolve().parents[2] / "tools/testbed"


def on_hosts(hosts, ranks, rate, *command):
    """What runs a command's ranks on hosts of tools/testbed, as torchrun would; and what that needs
    in its environment. Networks and so ports are the hosts' own."""
    return ([sys.executable, str(TESTBED), "--hosts", str(hosts), "--per-host",
             str(ranks // hosts), "--rate", rate, "--timeout", "3600", "--", "sh", "-c",
             'RANK=$RUBATO_RANK exec "$@"', "sh", *map(str, command)],
            {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29779",
             "GLOO_SOCKET_IFNAME": "wire"})


def call_timed(function):
    begin = time.perf_counter_ns()
    function()
    return (time.perf_counter_ns() - begin) / 1000


def in_turns(functions, seconds, turn, barrier):
    """Times of each function, called `turn` times before the next one's turn."""
    times = {name: [] for name in functions}
    for function in functions.values():
        for _ in range(2):
            function()
    begin, rounds = time.monotonic(), 0
    more = True
    while more:
        for name, function in functions.items():
            barrier()
            function() # Not timed: the barrier leaves the ranks apart.
            times[name] += [call_timed(function) for _ in range(turn)]
        rounds += 1
        more = rounds < 3 or barrier(time.monotonic() - begin < seconds)
    return times


def rank_main(options):
    import numpy as np
    import rubato
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel
    from rubato._library import check, lib

    if options.device == "cuda":
        torch.zeros(1, device="cuda") # The device is this thread's from now on.
    dist.init_process_group("rubato")
    rank, size = dist.get_rank(), dist.get_world_size()
    groups = {"rubato": dist.group.WORLD, "gloo": dist.new_group(backend="gloo")}
    parts = [None] * size

    def allgather(data):
        dist.all_gather_object(parts, data)
        return parts

    comm = rubato.init_oob(allgather, rank, size)

    def barrier(more=True):
        """All ranks go on, if rank 0 says so."""
        word = np.array([more], np.uint8)
        comm.broadcast(word)
        comm.barrier()
        return bool(word[0])

    found = []

    def report(what, times):
        if rank > 0:
            return
        line = {"what": what, "ranks": size, "hosts": options.hosts}
        for name, values in times.items():
            quarters = statistics.quantiles(values, n=4)
            line[name] = {"median": quarters[1], "low": quarters[0], "high": quarters[2],
                          "calls": len(values)}
        found.append(line)
        print(f"{what:26}", "  ".join(
            f"{name} {of['median']:.1f} ({of['low']:.1f}-{of['high']:.1f})"
            for name, of in line.items() if isinstance(of, dict)), flush=True)

    def whole(function):
        """Until the device has done it, if there is one."""
        def timed():
            function()
            torch.cuda.synchronize()
        return timed if options.device == "cuda" else function

    for length in map(int, options.sizes.split(",")):
        tensor = torch.zeros(length // 4, device=options.device)
        arguments = (comm._comm, rubato.ffi.cast("void *", tensor.data_ptr()),
                     rubato.ffi.cast("void *", tensor.data_ptr()), tensor.numel(),
                     rubato._library.TYPES["float32"], rubato._library.OPERATORS["sum"])
        functions = {}
        if options.device == "cpu" or options.library:
            functions["C"] = lambda: check(lib.rubato_allreduce(*arguments))
        for name, group in groups.items():
            functions[name] = whole(lambda group=group: dist.all_reduce(tensor, group=group))
        report(f"allreduce {length} B", in_turns(functions, options.seconds,
                                                 200 if length < 4096 else 5, barrier))

    def ddp(weights, group, hook=None):
        """Gradients are the model's own; nobody changes the weights, so all models share them."""
        inner = torch.nn.Module()
        inner.w = torch.nn.ParameterList(torch.nn.Parameter(w) for w in weights)
        inner.forward = lambda: sum(w[0] for w in inner.w)
        model = DistributedDataParallel(inner, process_group=group, gradient_as_bucket_view=True)
        if hook:
            model.register_comm_hook(None, hook)
        return model

    def divided(_, bucket):
        future = torch.futures.Future()
        future.set_result(bucket.buffer().div_(size))
        return future

    def backward(model, quiet=False):
        with model.no_sync() if quiet else contextlib.nullcontext():
            model().backward()

    for count in map(int, options.models.split(",")):
        weights = [torch.zeros(count // 20, device=options.device) for _ in range(20)]
        quiet = ddp(weights, groups["gloo"], divided)
        models = {name: ddp(weights, group) for name, group in groups.items()}
        functions = {name: lambda model=model: backward(model) for name, model in models.items()}
        functions["hook"] = lambda quiet=quiet: backward(quiet)
        functions["alone"] = lambda quiet=quiet: backward(quiet, quiet=True)
        functions = {name: whole(function) for name, function in functions.items()}
        times = in_turns(functions, options.seconds, 2, barrier)
        hook, alone = (statistics.median(times[name]) for name in ("hook", "alone"))
        report(f"DDP {count} parameters",
               {**{name: [t - hook for t in times[name]] for name in groups},
                "own": [t - alone for t in times["hook"]]})
        del functions, models, quiet, weights
    if rank == 0 and options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    comm.finalize()
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=1)
    parser.add_argument("--rate", default="1Gbit", help="of each host's link")
    parser.add_argument("--seconds", type=float, default=4, help="of each line")
    parser.add_argument("--sizes", default=SIZES, help="of the vectors, bytes")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--library", action="store_true",
                        help="the library's own call on the device's memory, too")
    parser.add_argument("--models", default="100000,11000000,100000000",
                        help="parameters of each (2 GB of memory a rank for the largest)")
    parser.add_argument("--quick", action="store_true",
                        help="shows that it works: a small model, times that say nothing")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.models = 0, "1000"
    if options.ranks < 1 or options.hosts < 1 or options.ranks % options.hosts:
        parser.error(f"{options.ranks} ranks cannot be shared equally by {options.hosts} hosts")
    if "RANK" in os.environ:
        return rank_main(options)
    if options.hosts > 1:
        words, more = on_hosts(options.hosts, options.ranks, options.rate, sys.executable,
                               *sys.argv)
        return subprocess.call(words, env={**os.environ, **more})
    return as_ranks(options.ranks)


if __name__ == "__main__":
    sys.exit(main())
