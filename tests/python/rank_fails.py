"""rank_fails.py HOW -- run as every rank of a job of three: rank 1 does something, and the others
must be told. Prints what each was told."""

import os
import signal
import sys
import time

import numpy as np

import rubato

how = sys.argv[1]
comm = rubato.init(timeout=20)
x = np.ones(1000, np.float32)
operation = comm.op_allreduce(x)
if comm.rank == 1:
    comm.barrier()
    operation.start()
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "raises":
        with comm:
            raise ValueError("an exception in a with block")
    elif how == "mismatch":
        operation.wait()
        comm.broadcast(x)
    elif how == "never":
        time.sleep(8)
        os._exit(0)
try:  # Rank 1 may have left before another one is through with the barrier.
    comm.barrier()
    if how == "never": # Not before all are here: ranks may start seconds apart.
        comm.set_timeout(3)
    operation.start()
    for _ in range(1000):
        comm.allreduce(x)
    operation.wait()
    print("told nothing")
except rubato.Error as error:
    print(f"{type(error).__name__} {error.status}: {error}")
try:
    comm.finalize()
except rubato.Error as error:
    print(f"finalize: {type(error).__name__}")
