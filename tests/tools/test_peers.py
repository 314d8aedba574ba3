#!/usr/bin/env python3
"""test_peers.py RUBATO-BENCH SANITIZER -- other libraries in the same run of rubato-bench."""

import json
import shutil
import sys
import unittest

from programs import check_usage, main, run

BENCH, SANITIZER = sys.argv[1:3]
del sys.argv[1:3]

if SANITIZER != "none":
    print("skipped: the other libraries are not built for sanitizers")
    sys.exit(77)
PEERS = [name for name in ("openmpi", "mpich") if shutil.which(f"mpirun.{name}")]
if not PEERS:
    print("skipped: neither Open MPI nor MPICH is installed")
    sys.exit(77)

OPS = """allreduce reduce_scatter allgather broadcast reduce alltoall gather scatter allgatherv
reduce_scatterv alltoallv barrier sendrecv""".split()


def bench(*words):
    got = run(BENCH, *words, "-w", 1, "-t", 2, "--json", "-")
    return got.returncode, json.loads(got.stdout), got.stderr.decode()


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

    def test_what_a_peer_lacks_is_said_and_left_out(self):
        got = run(BENCH, "allreduce", "-n", 2, "-b", 8, "-e", 8, "-d", "bfloat16", "-t", 2,
                  "--peer", PEERS[0])
        self.assertEqual(got.returncode, 0)
        self.assertIn(f"{PEERS[0]}: MPI has no such type", got.stdout.decode())

    def test_unknown_names_are_refused(self):
        check_usage(self, BENCH, "allreduce", "-n", 2, "--peer", "nosuch", says="openmpi")


if __name__ == "__main__":
    main()
