#!/usr/bin/env python3
"""test_overlap.py RUBATO-BENCH FAST-CLOCK -- rubato-bench --overlap: what it prints, and that it
tells what is hidden from what is not."""

import json
import sys
import unittest

from programs import check_usage, main, run

BENCH, FAST_CLOCK = sys.argv[1:3]
del sys.argv[1:3]
FEW = ["-n", 2, "-w", 1, "-t", 8]
TRIES = 10  # Others may keep the cores busy.


def overlap(*words, env=None):
    got = run(BENCH, "--overlap", *words, "--json", "-", env=env)
    assert (got.returncode, got.stderr) == (0, b""), got
    return json.loads(got.stdout)["results"]


class Overlap(unittest.TestCase):
    def test_every_kind_of_memory_and_computation(self):
        rows = overlap("allreduce", "-b", "4K", "-e", "64K", *FEW)
        self.assertEqual([(row["size"], row["buffers"], row["behind"]) for row in rows],
                         [(size, buffers, behind) for size in (4096, 65536)
                          for buffers in ("plain", "registered", "alloc")
                          for behind in ("sleeping", "computing")])
        for row in rows:
            self.assertEqual((row["op"], row["count"], row["wrong"]),
                             ("allreduce", row["size"] // 4, 0))
            hidden = row["hidden"]
            self.assertAlmostEqual(hidden["share"], 1 - row["exposed_us"] / row["alone_us"], 6)
            self.assertLessEqual(hidden["low"], hidden["share"] + 1e-9)
            self.assertLessEqual(hidden["share"], hidden["high"] + 1e-9)
            if row["behind"] == "sleeping":
                self.assertLessEqual(hidden["share"], 1)
                self.assertLessEqual(row["start_us"], row["exposed_us"])

    def test_every_operation(self):
        for op in "allreduce", "reduce_scatter", "allgather", "broadcast", "alltoall":
            for transport in "shm", "tcp":
                rows = overlap(op, "-b", "1K", "-e", "1K", "--transport", transport, "-n", 3,
                               "-w", 0, "-t", 2)
                self.assertEqual([row["wrong"] for row in rows], [0] * 6)

    def test_computations_last(self):
        for row in overlap("allreduce", "-b", 64, "-e", 64, "--computation", "3ms",
                           "--buffers", "plain", *FEW):
            self.assertGreater(row["computation_us"], 2690)

    def test_computations_last_where_the_core_was_busy_before(self):
        got = run(BENCH, "--overlap", "allreduce", "-b", 64, "-e", 64, "--computation", "3ms",
                  "--buffers", "plain", "--behind", "computing", *FEW, "--json", "-",
                  env={"LD_PRELOAD": FAST_CLOCK, "ASAN_OPTIONS": "verify_asan_link_order=0"})
        self.assertEqual((got.returncode, got.stderr.count(b"fault fired\n")), (0, 2), got)
        [row] = json.loads(got.stdout)["results"]
        self.assertGreater(row["computation_us"], 2690)

    def test_what_waits_for_nobody_is_hidden(self):
        """Without a progress thread an operation goes on when it is waited for."""
        words = ["allreduce", "-b", "4M", "-e", "4M", "--computation", "30ms", "--buffers",
                 "plain", "--behind", "sleeping", *FEW]
        for _ in range(TRIES):
            shares = [overlap(*words, env={"RUBATO_BACKGROUND": background})[0]["hidden"]["share"]
                      for background in "01"]
            if shares[0] < 0.6 < 0.8 < shares[1]:
                return
        self.fail(f"hidden {shares}")

    def test_table(self):
        got = run(BENCH, "--overlap", "broadcast", "-b", 64, "-e", 64, "--behind", "sleeping",
                  *FEW)
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        lines = [line for line in got.stdout.decode().splitlines() if line[0] != "#"]
        self.assertEqual([line.split()[:3] for line in lines],
                         [["64", buffers, "sleeping"]
                          for buffers in ("plain", "registered", "alloc")])

    def test_bad_options(self):
        for words, says in ((["--overlap"], "--overlap"), (["--overlap", "barrier"], "barrier"),
                            (["--overlap", "allreduce", "-t", 0], "-t"),
                            (["--overlap", "allreduce", "-b", "2M", "-e", "1M"], "-e is less"),
                            (["--overlap", "allreduce", "--buffers", "none"], "none")):
            check_usage(self, BENCH, *words, says=says)


if __name__ == "__main__":
    main()
