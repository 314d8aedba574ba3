"""launch.py -- a script starts itself as all the ranks of a job on this machine."""

import os
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))

from ports import hold, number  # noqa: E402


def as_ranks(count):
    """Runs this command again as `count` ranks, whose environment has what init_process_group looks
    for; returns the worst of their exit statuses."""
    with hold() as held:
        where = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(number(held))}
        ranks = [subprocess.Popen([sys.executable, *sys.argv],
                                  env={**os.environ, "OMP_NUM_THREADS": "1", "RANK": str(rank),
                                       "WORLD_SIZE": str(count), **where})
                 for rank in range(count)]
        return max(abs(child.wait()) for child in ranks)
