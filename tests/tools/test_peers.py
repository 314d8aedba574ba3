#!/usr/bin/env python3
"""test_peers.py RUBATO-BENCH SANITIZER -- other libraries in the same run of rubato-bench."""

import json
import os
import pathlib
import shutil
import sys
import tempfile
import time
import unittest

from programs import DEADLINE_S, Watch, check_usage, main, run, start

BENCH, SANITIZER = sys.argv[1:3]
del sys.argv[1:3]

if SANITIZER != "none":
    print("skipped: the other libraries are not built for sanitizers")
    sys.exit(77)
PEERS = [name for name in ("openmpi", "mpich") if shutil.which(f"mpirun.{name}")]
BUILT = pathlib.Path(BENCH).parent

# What PyTorch is to rubato-peer-gloo, for barriers. A thread of it never sleeps; it says at the end
# how far it came.
TORCH = """import threading
from unittest.mock import MagicMock

__version__ = "of a test"
turns = [0]

def spin():
    while True:
        turns[0] += 1

threading.Thread(target=spin, daemon=True).start()

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()
"""
DISTRIBUTED = """import os
from unittest.mock import MagicMock

import torch

def destroy_process_group():
    with open(os.environ["SPUN"], "a") as file:
        print(torch.turns[0], file=file)

def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return MagicMock()
"""

OPS = """allreduce reduce_scatter allgather broadcast reduce alltoall gather scatter allgatherv
reduce_scatterv alltoallv barrier sendrecv""".split()

UNEVEN = ("allgatherv", "reduce_scatterv", "alltoallv")


def bench(*words, env=None, iterations=2):
    got = run(BENCH, *words, "-w", 1, "-t", iterations, "--json", "-", env=env)
    return got.returncode, json.loads(got.stdout), got.stderr.decode()


def wait_for(condition):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.001)


def state(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return ""


def children(pid):
    return [int(word) for word in
            pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


class Turns(unittest.TestCase):
    def test_others_stand_still_meanwhile(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "torch")
            package.mkdir()
            (package / "__init__.py").write_text(TORCH)
            (package / "distributed.py").write_text(DISTRIBUTED)
            spun = pathlib.Path(folder, "spun")
            code, said, err = bench("barrier", "-n", 2, "--peer", "gloo", iterations=20,
                                    env={"PYTHONPATH": folder, "SPUN": spun})
            self.assertEqual((code, err), (0, ""))
            peer = said["peers"][0]
            self.assertEqual((peer["name"], peer["library"]),
                             ("gloo", "Gloo of PyTorch of a test"))
            # At the beginning, and after each of 16 turns.
            self.assertEqual(peer["turns"], 17)
            counts = [int(line) for line in spun.read_text().split()]
            self.assertEqual(len(counts), 2)
            self.assertGreater(min(counts), 0, "no thread of the peer has spun")
            self.assertGreater(peer["cpu_us_in_turns"], 0)
            self.assertEqual(peer["cpu_us_between"], 0)

    def test_stopped_ranks_end_with_us(self):
        with tempfile.TemporaryDirectory() as folder:
            package = pathlib.Path(folder, "torch")
            package.mkdir()
            (package / "__init__.py").write_text(TORCH + """
import os
with open(os.environ["PIDS"], "a") as file:
    print(os.getpid(), file=file)
""")
            (package / "distributed.py").write_text(DISTRIBUTED)
            pids = pathlib.Path(folder, "pids")
            # One rank, without a launcher that would clear up: it ends while the peer is stopped.
            with start(BENCH, "barrier", "-t", 1000000, "--peer", "gloo",
                       env={"PYTHONPATH": folder, "SPUN": folder + "/spun", "PIDS": pids}) as job:
                wait_for(lambda: pids.exists() and len(pids.read_text().split()) >= 1)
                pid = int(pids.read_text().split()[0])
                watch = Watch(sorted({int(pid) for pid in pids.read_text().split()} | {pid}))
                wait_for(lambda: any(state(child) == "T" for child in children(pid)))
                watch_ranks = Watch(children(pid))
                job.kill()
            self.assertEqual((watch.alive(), watch_ranks.alive()), ([], []))

    @unittest.skipIf("openmpi" not in PEERS, "Open MPI is not installed")
    def test_those_of_a_prefix_come_first(self):
        with tempfile.TemporaryDirectory() as folder:
            own = pathlib.Path(folder, "openmpi")
            (own / "bin").mkdir(parents=True)
            (own / "libexec").mkdir()
            (own / "libexec/rubato-peer").symlink_to(BUILT / "rubato-peer-openmpi")
            (own / "bin/mpirun").write_text(f"""#!/bin/sh
echo "$MALLOC_MMAP_MAX_ $LD_LIBRARY_PATH $(env -u OMP_NUM_THREADS nproc)" >{folder}/started
exec mpirun.openmpi "$@"
""")
            (own / "bin/mpirun").chmod(0o755)
            code, said, err = bench("barrier", "-n", 2, "--peers", folder, "--peer", "openmpi",
                                    "--bind", "core")
            self.assertEqual((code, err, said["bound"]), (0, "", True))
            malloc, libraries, cores = pathlib.Path(folder, "started").read_text().split()
            self.assertEqual((malloc, libraries.split(":")[0]), ("0", f"{own}/lib"))
            # Rank 0, which starts it, is bound to one.
            self.assertEqual(int(cores), len(os.sched_getaffinity(0)))

    def test_what_is_nowhere_is_said(self):
        got = run(BENCH, "barrier", "-n", 2, "-t", 1, "--peers", "/nowhere", "--peer", "intelmpi")
        self.assertEqual(got.returncode, 0)
        self.assertIn("left out: intelmpi: tools/peers PREFIX installs it", got.stderr.decode())

    def test_unknown_words_are_refused(self):
        check_usage(self, BENCH, "allreduce", "-n", 2, "--peer", "nosuch", says="openmpi")
        check_usage(self, BENCH, "allreduce", "--bind", "core", says="-n starts")
        check_usage(self, BENCH, "allreduce", "-n", 2, "--bind", "socket", says="auto, core, none")


class Bound(unittest.TestCase):
    def test_it_is_right(self):
        """In one chunk and in several, with ends that are no multiple of anything."""
        for op in OPS:
            for ranks in 2, 3:
                with self.subTest(op, ranks=ranks):
                    places = () if op in ("broadcast", "sendrecv") else ("--in-place", 0)
                    code, said, err = bench(op, "-n", ranks, "-b", 8, "-e", "1M", "-f", 47,
                                            "--peer", "bound", *places, iterations=3)
                    self.assertEqual((code, err), (0, ""))
                    rows = [row for row in said["results"] if row["impl"] == "bound"]
                    count = 0 if op in UNEVEN else 1 if op == "barrier" else 4
                    self.assertEqual([row["wrong"] for row in rows], [0] * count)

    def test_what_it_lacks_is_said(self):
        for words, says in ((("-d", "float64", "--in-place", 0), "the bound is of float32 sums"),
                            (("-o", "max", "--in-place", 0), "the bound is of float32 sums"),
                            (("--in-place", 1), "it has no in-place forms")):
            got = run(BENCH, "allreduce", "-n", 2, "-b", 8, "-e", 8, "-t", 2, "--peer", "bound",
                      *words)
            self.assertEqual(got.returncode, 0)
            self.assertIn(f"bound: {says}", got.stdout.decode())


@unittest.skipIf(not PEERS, "neither Open MPI nor MPICH is installed")
class Peers(unittest.TestCase):
    def test_every_operation_is_right_everywhere(self):
        for op in OPS:
            with self.subTest(op):
                code, said, err = bench(op, "-n", 2, "-b", 400, "-e", 400, "--peer", PEERS[0])
                self.assertEqual((code, err), (0, ""))
                rows = said["results"]
                self.assertEqual({row["impl"] for row in rows}, {"rubato", PEERS[0]})
                self.assertEqual({row["wrong"] for row in rows}, {0})
                for row in rows:
                    self.assertGreater(row["time_us"]["median"], 0)
                    self.assertEqual(row["algorithm"] is None, row["impl"] != "rubato")

    def test_all_that_are_here_take_turns(self):
        code, said, _ = bench("allreduce", "-n", 3, "-b", 8, "-e", 8, "--peer", ",".join(PEERS))
        self.assertEqual(code, 0)
        self.assertEqual({row["impl"] for row in said["results"]}, {"rubato", *PEERS})
        self.assertEqual([peer["name"] for peer in said["peers"]], PEERS)
        self.assertEqual({peer["cpu_us_between"] for peer in said["peers"]}, {0})

    def test_ratios_have_intervals(self):
        for iterations in 2, 16:
            code, said, _ = bench("allreduce", "-n", 2, "-b", 8, "-e", 8, "--peer", PEERS[0],
                                  iterations=iterations)
            self.assertEqual(code, 0)
            rows = [row for row in said["results"] if row["impl"] != "rubato"]
            ours = {row["in_place"]: row for row in said["results"] if row["impl"] == "rubato"}
            self.assertEqual(len(rows), 2)
            for row in rows:
                over, mine = row["rubato_over_it"], ours[row["in_place"]]
                whole = mine["time_us"]["whole"] / row["time_us"]["whole"]
                self.assertAlmostEqual(row["rubato_over_it_whole"]["ratio"], whole, 6)
                self.assertLessEqual(row["time_us"]["slowest"], row["time_us"]["whole"])
                medians = mine["time_us"]["median"] / row["time_us"]["median"]
                self.assertAlmostEqual(over["ratio"], medians, 6)
                if iterations == 2: # Too few turns for one.
                    self.assertEqual((over["low"], over["high"]), (None, None))
                else:
                    self.assertLessEqual(over["low"], over["ratio"])
                    self.assertLessEqual(over["ratio"], over["high"])

    def test_what_a_peer_lacks_is_said_and_left_out(self):
        got = run(BENCH, "allreduce", "-n", 2, "-b", 8, "-e", 8, "-d", "bfloat16", "-t", 2,
                  "--peer", PEERS[0])
        self.assertEqual(got.returncode, 0)
        self.assertIn(f"{PEERS[0]}: MPI has no such type", got.stdout.decode())



if __name__ == "__main__":
    main()
