"""test_sim_memory -- what simulations of many ranks keep in memory, at most.

usage: test_sim_memory.py RUBATO-SIM
"""

import json
import os
import subprocess
import sys
import unittest

from programs import main

SIM = sys.argv.pop(1)
MIB = 1 << 20


def most_bytes(*words):
    """What it kept resident, at the most, and its one row."""
    with subprocess.Popen([SIM, *words, "--json", "-"], stdout=subprocess.PIPE) as child:
        text = child.stdout.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, child.returncode
    row, = json.loads(text)["results"]
    return usage.ru_maxrss * 1024, row


class Memory(unittest.TestCase):
    def test_an_allreduce_among_1024_ranks(self):
        most, row = most_bytes("allreduce", "-n", "1024", "-b", "64K", "-e", "64K", "-t", "1")
        self.assertEqual((row["algorithm"], row["wrong"]), ("recursive_halving_doubling", 0))
        self.assertGreater(row["messages"], 1024 * 20)  # All was simulated, none of it hollow.
        self.assertGreater(most, 1024 * 64 << 10)  # The results alone take that.
        self.assertLess(most, 200 * MIB)


if __name__ == "__main__":
    main()
