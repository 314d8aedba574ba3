"""rank_ends.py HOW -- run as both ranks of a job: rank 1 ends without a word, and rank 0 is told,
and does not wait for it at its own end."""

import os
import signal
import sys

import torch.distributed as dist
from rubato_torch.communicator import communicator

dist.init_process_group("gloo")
comm = communicator()
comm.barrier()
if dist.get_rank() == 1:
    if sys.argv[1] == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ValueError("nobody catches this")
