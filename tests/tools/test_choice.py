"""test_choice -- what the choice among algorithms loses against the best one, in virtual time.

usage: test_choice.py RUBATO-SIM

Each cell is an operation and a size on a network. None loses more than BOUND percent.
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from programs import main

SIM = sys.argv.pop(1)
BOUND = 10
# Of buffers that peers cannot map: no rank knows of all, and mapped ones have another best way.
PLAIN_BOUND = 20
# Of calls of some 50 us, where a burst hides all that the network's rate would take.
BURST_BOUND = 25
PROFILE = """latency 5us
bandwidth {}Gbit
cards 1
send 0.5us
receive 0.5us
node-latency 0.3us
node-send 0.1us
node-receive 0.1us
work 0.05us
memory-bandwidth 80GB/s
core-bandwidth 20GB/s
"""

def choose(ranks, nodes, gbit, *words):
    with tempfile.TemporaryDirectory() as folder:
        profile = os.path.join(folder, "profile")
        with open(profile, "w", encoding="utf-8") as file:
            file.write(PROFILE.format(gbit))
        return subprocess.run(
            [SIM, "choice", "-n", str(ranks), "--topology", nodes, "--profile", profile,
             "--json", "-", *words],
            capture_output=True, text=True, timeout=600, check=False)


def losses(*words):
    done = choose(*words)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"]


class Choice(unittest.TestCase):
    def check(self, ranks, nodes, gbit, *words, bound=BOUND):
        rows = losses(ranks, nodes, gbit, *words)
        self.assertGreater(len(rows), 0)
        for row in rows:
            self.assertLessEqual(row["loss_percent"], bound,
                                 f"{ranks} ranks, {nodes}, {gbit} Gbit/s, {row}")

    def test_16_ranks(self):
        for nodes in "flat", "nodes:8":
            for gbit in 1, 25, 100:
                self.check(16, nodes, gbit)

    def test_64_ranks(self):
        for nodes in "flat", "nodes:8":
            self.check(64, nodes, 25, "--operations", "allreduce,allgather,broadcast", "-b", "4K",
                       "-e", "1M", "-f", "256")
        # Processors set the pace there, and the memory that a node's ranks share.
        self.check(64, "nodes:8", 100, "--operations", "allreduce,broadcast,reduce,scatter", "-b",
                   "64K", "-e", "16M")

    def test_256_ranks(self):
        self.check(256, "nodes:8", 25, "--operations", "allreduce,broadcast", "-b", "64K", "-e",
                   "64K")
        self.check(256, "nodes:8", 100, "--operations", "gather,reduce,scatter", "-b", "4K", "-e",
                   "64K")
        # A tree in pieces.
        self.check(256, "flat", 1, "--operations", "broadcast,reduce", "-b", "1K", "-e", "16K")
        self.check(256, "flat", 25, "--operations", "reduce", "-b", "64K", "-e", "64K")
        self.check(256, "flat", 25, "--operations", "scatter,alltoall", "-b", "64K", "-e", "64K")
        self.check(256, "flat", 100, "--operations", "allreduce", "-b", "64K", "-e", "64K")

    def test_4_ranks(self):
        # Blocks are a third of the vector, which each rank sends once.
        self.check(4, "flat", 1, "--operations", "broadcast,reduce", "-b", "64K")

    def test_plain_buffers(self):
        self.check(16, "nodes:8", 1, "--plain")
        for gbit in 25, 100:
            self.check(16, "nodes:8", gbit, "--plain", bound=PLAIN_BOUND)
            self.check(16, "nodes:8", gbit, "--plain", "--operations", "alltoall,alltoallv,gather")
        # Copied once, where messages within a node are long enough.
        self.check(16, "nodes:8", 100, "--plain", "--operations", "allreduce,reduce_scatter", "-b",
                   "4M", "-e", "16M")
        self.check(16, "nodes:8", 100, "--plain", "--operations", "broadcast,allgather", "-b",
                   "1M", "-e", "1M")
        # In chunks that are copied once even where they cross.
        self.check(16, "nodes:8", 100, "--plain", "--operations",
                   "broadcast,allgather,allgatherv", "-b", "4M", "-e", "64M")
        # What is left of hierarchical_direct there, pairwise, takes a fifth longer than flat.
        self.check(64, "nodes:8", 1, "--plain", "--operations", "alltoall", "-b", "1M", "-e", "4M")
        self.check(64, "nodes:8", 100, "--plain", "--operations", "alltoall", "-b", "64K", "-e",
                   "64K")

    def test_links_with_a_burst(self):
        for nodes in "nodes:2", "nodes:4":
            for words in (), ("--plain",):
                self.check(8, nodes, 1, "--burst", "125000", "-b", "16K", "-e", "256K", *words,
                           bound=BURST_BOUND)

    def test_a_loss_beyond_the_bound_fails(self):
        cell = ("--operations", "broadcast", "-b", "256K", "-e", "256K")
        for bound, status in ("1", 1), ("20", 0):
            self.assertEqual(choose(16, "flat", 1, "--bound", bound, *cell).returncode, status)


if __name__ == "__main__":
    main()
