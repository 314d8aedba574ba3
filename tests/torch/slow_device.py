"""slow_device.py -- what tests of tensors of devices share: a device that is told to be late. It is
late_device.cpp's, where LATE_DEVICE names that, and else the CUDA device 0."""

import os
import types

import numpy as np
import torch

R, N = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NAME = "late" if "LATE_DEVICE" in os.environ else "cuda"
LATE_US = 20000
# It shows on a busy machine, too, where the late device's streams are threads.
PLANTED_US = 3000000 if NAME == "late" else 300000
ELSEWHERE = 4 # The late device's stream that nothing is given to but reads.
_cuda = types.SimpleNamespace(elsewhere=None, cycles_per_us=0.0)


def use():
    """Before any other of these."""
    if NAME == "cuda":
        _cuda.elsewhere = torch.cuda.Stream()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        cycles = 10**7
        for _ in range(2): # The first one loads the kernel.
            begin.record()
            torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
        _cuda.cycles_per_us = cycles / (begin.elapsed_time(end) * 1000)
        return
    torch.ops.load_library(os.environ["LATE_DEVICE"])
    torch.utils.rename_privateuse1_backend("late")
    module = types.ModuleType("torch.late")
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_device = lambda device: None
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    torch._register_device_module("late", module)


def sleep(us):
    """The current stream does nothing for so long."""
    if NAME == "cuda":
        torch.cuda._sleep(int(us * _cuda.cycles_per_us))
    else:
        torch.ops.late.sleep(us)


def plant(fault):
    """A fault of the late device's, or "" for none."""
    if NAME == "late":
        torch.ops.late.plant(fault)


def values(rank, shape, dtype=torch.float32, salt=0):
    """Small whole numbers, so that every order of additions has one result."""
    return torch.tensor(np.random.default_rng([rank, salt]).integers(1, 4, shape)).to(dtype)


def every(shape, dtype=torch.float32, salt=0):
    return [values(rank, shape, dtype, salt) for rank in range(N)]


def empty(*shape, dtype=torch.float32):
    return torch.full(shape, 9, dtype=dtype).to(NAME)


def late(tensor, us=LATE_US):
    """On the device: nines now, and some time from now the values of a tensor of the host."""
    if NAME == "cuda":
        tensor = tensor.pin_memory() # Else the copy would wait for the sleep.
    there = empty(*tensor.shape, dtype=tensor.dtype)
    sleep(us)
    return there.copy_(tensor, non_blocking=True)


def seen(tensor):
    """What is there now, for a stream that has waited for nothing."""
    if NAME == "cuda":
        with torch.cuda.stream(_cuda.elsewhere):
            return tensor.cpu()
    before = torch.ops.late.stream(ELSEWHERE)
    try:
        return tensor.cpu()
    finally:
        torch.ops.late.stream(before)
