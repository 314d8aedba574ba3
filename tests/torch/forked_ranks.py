"""forked_ranks.py -- starts the ranks of jobs for test_torch.py, as forks of a process that has
imported torch: that takes seconds otherwise, for each rank of each job.

Each line of standard input is a job in JSON: "ranks", "command" (a script and its words), "folder"
(where it runs and each rank's output goes), "environment" (all of it, but for what a launcher
sets), "awaited" and "patience" (seconds). The answer is a line, too: how each rank ended, and who
of the awaited had to be killed. Others are killed when these have ended.
"""

import json
import os
import runpy
import signal
import sys
import time

import numpy  # noqa: F401 -- so that the ranks have it.
import torch.distributed  # noqa: F401
import torch.distributed.fsdp  # noqa: F401
import torch.nn.parallel  # noqa: F401

from launch import hold, number


def become(job, rank, port):
    """This process is now that rank, as far as a script can tell."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(os.path.join(job["folder"], str(rank)), os.O_WRONLY | os.O_CREAT)
    for fd, to in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(fd, to)
    os.chdir(job["folder"])
    os.environ.clear()
    os.environ.update(job["environment"], RANK=str(rank), LOCAL_RANK=str(rank),
                      WORLD_SIZE=str(job["ranks"]), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = job["command"]
    sys.path[0] = os.path.dirname(job["command"][0])


def wait(pids, awaited, until):
    """Waits for the awaited; then all others are killed. Returns how each ended, by rank, and
    which awaited ones were not over in time."""
    status = {}

    def look(rank):
        if rank not in status:
            pid, how = os.waitpid(pids[rank], os.WNOHANG)
            if pid:
                status[rank] = os.waitstatus_to_exitcode(how)
        return rank in status

    while not all([look(rank) for rank in awaited]) and time.monotonic() < until:
        time.sleep(0.02)
    hung = [rank for rank in awaited if rank not in status]
    for rank, pid in enumerate(pids):
        if not look(rank):
            os.kill(pid, signal.SIGKILL)
            status[rank] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return [status[rank] for rank in range(len(pids))], hung


def serve():
    """Returns in the ranks only, with their script."""
    for line in sys.stdin:
        job = json.loads(line)
        held, pids = hold(), []
        for rank in range(job["ranks"]):
            pid = os.fork()
            if pid == 0:
                become(job, rank, number(held))
                return job["command"][0]
            pids.append(pid)
        print(json.dumps(wait(pids, job["awaited"], time.monotonic() + job["patience"])),
              flush=True)
        held.close()
    raise SystemExit


# At the end of the file, so that exceptions end the process as they end a script's.
runpy.run_path(serve(), run_name="__main__")
