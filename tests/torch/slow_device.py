"""slow_device.py -- what tests of tensors of devices share: a device that is told to be late. It is
late_device.cpp's, where LATE_DEVICE names that, and else the CUDA device 0. Where BACKEND_OF_CUDA
names one, the backend is that one, to which the late device's memory is CUDA's."""

import ctypes
import importlib.util
import os
import sys
import types

import numpy as np
import torch

R, N = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
NAME = "late" if "LATE_DEVICE" in os.environ else "cuda"
LATE_US = 20000
# It shows on a busy machine, too, where the late device's streams are threads.
PLANTED_US = 3000000 if NAME == "late" else 300000
# Whether the library reads and writes its memory itself.
DIRECT = "BACKEND_OF_CUDA" in os.environ if NAME == "late" else os.environ.get(
    "RUBATO_CUDA") != "off"
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
    if DIRECT:
        use_backend(os.environ["BACKEND_OF_CUDA"])
    torch.utils.rename_privateuse1_backend("late")
    module = types.ModuleType("torch.late")
    module.is_available = module.is_initialized = lambda: True
    module.device_count = lambda: 1
    module.current_device = lambda: 0
    module.set_device = lambda device: None
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda seed: None
    torch._register_device_module("late", module)


def use_backend(path):
    import rubato  # noqa: F401 -- for its library.
    import rubato_torch
    spec = importlib.util.spec_from_file_location("rubato_torch._backend", path)
    rubato_torch._backend = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(rubato_torch._backend)


class _Counts(ctypes.Structure):
    """struct fake_cuda_counts: those before, and room for more than there are behind."""
    _fields_ = [("before", ctypes.c_uint64 * 4), ("host_copies", ctypes.c_uint64),
                ("behind", ctypes.c_uint64 * 60)]


def host_copies():
    """How many the late device's driver has been asked for, from or to the host."""
    counts = ctypes.CDLL("libcuda.so.1").fake_cuda_counts
    counts.restype = _Counts
    return counts().host_copies


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
