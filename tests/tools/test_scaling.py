"""test_scaling -- tools/scaling and tools/calibrate, in small: tables, profiles, refusals.

usage: test_scaling.py SOURCE-ROOT BUILD-ROOT
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from programs import main

TOOLS = pathlib.Path(sys.argv.pop(1)) / "tools"
BUILD = pathlib.Path(sys.argv.pop(1))


def tool(name, *words):
    return subprocess.run([sys.executable, TOOLS / name, *map(str, words)], capture_output=True,
                          text=True, timeout=100, check=False)


class Folder(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.out = pathlib.Path(self.folder.name)

    def refused(self, name, *words):
        done = tool(name, *words)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (2, 1), done.stderr)


class Scaling(Folder):
    def test_rows_of_both_networks(self):
        done = tool("scaling", "--build", BUILD, "--out", self.out, "--most", 16)
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split("|")[1:-1] for line in done.stdout.splitlines()
                if line.startswith("| 16 |")]
        self.assertEqual([row[1].strip() for row in rows], ["flat", "nodes of 8"] * 2)
        for row in rows[:2]:  # More bytes, more time.
            times = [float(cell.split()[0].replace(",", "")) for cell in row[2:5]]
            self.assertEqual(times, sorted(times))
        for row in rows[2:]:  # Who waits for all waits longest, who waits for nobody least.
            allreduce, solo, majority, quorum = (float(cell.split()[0]) for cell in row[2:6])
            self.assertLess(solo, quorum)
            self.assertLess(max(majority, quorum), allreduce)
        self.assertEqual((self.out / "scaling.md").read_text(), done.stdout)

    def test_nonsense_is_refused(self):
        self.refused("scaling", "--most", 4, "--build", BUILD)
        self.refused("scaling", "--build", self.out)
        self.refused("scaling", "--nonsense")


class Calibrate(Folder):
    def test_a_profile_and_a_row_for_each_size(self):
        path = self.out / "all.json"
        done = tool("calibrate", "--build", BUILD, "--out", self.out, "--begin", "4K", "--end",
                    "16K", "--ranks", "1,2", "--iterations", 2, "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(path.read_text())
        self.assertEqual([(cell["size"], cell["ranks"]) for cell in found["cells"]],
                         [(4096, 1), (4096, 2), (16384, 1), (16384, 2)])
        for size in "4K", "16K":
            sim = subprocess.run([BUILD / "tools" / "rubato-sim", "barrier", "-n", "2",
                                  "--profile", self.out / f"{size}.profile", "--json", "-"],
                                 capture_output=True, text=True, check=True)
            network = json.loads(sim.stdout)["network"]
            self.assertGreater(network["core_bandwidth"], 0)
            self.assertGreaterEqual(network["memory_bandwidth"], network["core_bandwidth"])
            self.assertGreater(network["node_send_ns"], 0)
            self.assertGreater(network["turn_ns"], 0)
            self.assertEqual(network["cores"], len(os.sched_getaffinity(0)))
        for cell in found["cells"]:
            self.assertGreater(min(cell["measured_us"], cell["simulated_us"]), 0)
        self.assertIn(f"of {len(found['cells'])}.", done.stdout)

    def test_nonsense_is_refused(self):
        self.refused("calibrate", "--begin", "64K", "--end", "4K", "--build", BUILD)
        self.refused("calibrate", "--ranks", "2,x", "--build", BUILD)
        self.refused("calibrate", "--begin", "0", "--build", BUILD)
        self.refused("calibrate", "--build", self.out)


if __name__ == "__main__":
    main()
