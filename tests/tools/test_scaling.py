"""test_scaling -- tools/scaling and tools/calibrate, in small: tables, profiles, refusals.

usage: test_scaling.py SOURCE-ROOT BUILD-ROOT
"""

import importlib.machinery
import importlib.util
import json
import math
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


def calibrate():
    loader = importlib.machinery.SourceFileLoader("calibrate", str(TOOLS / "calibrate"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("calibrate", loader))
    loader.exec_module(module)
    return module


class Levels(unittest.TestCase):
    """Of a machine whose caches hold copies of 512 KiB at 240, of 8 MiB at 120; memory has 40."""
    CURVE = {k << 16: 240 if k <= 8 else 120 if k <= 128 else 40
             for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)}

    def test_each_job_has_the_cache_that_it_does_not_fit(self):
        module = calibrate()
        rows = [(1, 1, 240), (256, 1, 240), (2 << 10, 1, 240), (8 << 10, 1, 240),
                (16 << 10, 18, 120), (32 << 10, 18, 120), (256 << 10, 18, 120)]
        for vector, cache, cached in rows:
            level = module.level_of(self.CURVE, vector << 10)
            self.assertEqual((level.cache_bytes >> 20, level.cached), (cache, cached), vector)
            self.assertEqual(module.rate_at(self.CURVE, level.vector), 120 if cache == 1 else 40)
        level = module.level_of(self.CURVE, 12 << 20)  # Some of it is found in the larger one.
        self.assertEqual((level.cache_bytes >> 20, level.cached), (1, 240))
        self.assertTrue(40 < module.rate_at(self.CURVE, level.vector) < 120)

    def test_where_no_end_is_found_all_fits(self):
        level = calibrate().level_of({1 << 20: 100, 2 << 20: 90, 4 << 20: 80}, 1 << 20)
        self.assertEqual((level.cache_bytes, level.cached), (8 << 20, 100))

    def test_what_fits_goes_as_fast_as_its_length(self):
        module = calibrate()
        curve = self.CURVE | {4 << 10: 960, 8 << 10: 960, 16 << 10: 480, 32 << 10: 480,
                              1 << 19: 180}
        # Of 1 MiB a third is not found where there is room for 0.822: that is simulated.
        self.assertAlmostEqual(module.share_gone(1 / 0.822), 1 / 3, 3)
        for vector, cached in (1, 960), (8, 960), (16, 480), (256, 240), (512, 240), (600, 240):
            for alone in True, False:  # Of others first-level caches do not count.
                level, own = module.levels_for(curve, vector << 10, alone)
                self.assertIs(level, own)
                self.assertAlmostEqual(level.cache_bytes / (1 << 20), 0.822, 3)
                self.assertAlmostEqual(level.cached, cached if alone else min(cached, 240), 3)
                self.assertEqual(module.rate_at(curve, level.vector), 120)

    def test_what_is_found_slower_is_never_faster_than_anything(self):
        module = calibrate()
        for rate in range(20, 240, 3):
            level, _ = module.levels_for(self.CURVE | {1 << 19: rate}, 1 << 19, True)
            self.assertTrue(0 < level.cached <= 240, (rate, level.cached))

    def test_where_one_level_shows_the_next_longer_ones_lie_behind_it(self):
        module = calibrate()
        curve = {k << 16: 240 if k <= 8 else 120 if k <= 256 else 90
                 for k in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)}
        for vector, far in (1 << 20, 120), (2 << 20, 120), (32 << 20, 90):
            level, own = module.levels_for(curve, vector, False)
            self.assertIs(level, own)
            self.assertEqual(module.rate_at(curve, level.vector), far, vector)

    def test_what_reaches_beyond_half_of_the_outer_cache_has_both(self):
        module = calibrate()
        # Of 32 MiB, as much goes as where what makes room of 24 MiB is drawn.
        share = 0.4685
        self.assertAlmostEqual(1 - share, math.exp(-share * 32 / 23.72), 2)
        curve = self.CURVE | {16 << 20: 1 / ((1 - share) / 120 + share / 40)}
        for vector in 6 << 20, 64 << 20:
            level, own = module.levels_for(curve, vector, False)
            self.assertAlmostEqual(level.cache_bytes / (1 << 20), 23.72, 1)
            self.assertEqual((own.cache_bytes >> 20, own.cached, level.cached), (1, 240, 120))
            self.assertEqual(module.rate_at(curve, level.vector), 40)
        machine = module.Machine(BUILD, 1)
        found = {"barrier": 4e-7, "work": 1.2e-7, "call": 9e-8, "turn": 1, "shared": 0,
                 "kernel": 0, "slower": 1.5}
        curves = {jobs: {size: rate * 1e9 for size, rate in curve.items()}
                  for jobs in range(1, 1 + max(2, machine.cores))}
        lines = machine.profile(64 << 20, 1, found, curves)
        self.assertEqual([lines[name] for name in ("cached-bandwidth", "reduced-bandwidth",
                                                   "outer-bandwidth", "core-bandwidth")],
                         ["240.000GB/s", "160.000GB/s", "120.000GB/s", "40.000GB/s"])
        self.assertEqual(int(lines["outer-cache"]), level.cache_bytes)
        self.assertNotIn("outer-cache", machine.profile(1 << 20, 1, found, curves))

    def test_rounds_in_which_the_machine_changed_do_not_count(self):
        module = calibrate()
        took = [(2, 2, 2), (4, 4, 4), (2, 4, 4), (2, 2.9, 2), (4, 4.1, 4), (4, 4, 5.9)]
        rounds = [module.Round(None, None, list(one)) for one in took]
        self.assertEqual(module.alike(rounds[:3]), rounds[:1])
        self.assertEqual(module.alike(rounds), [rounds[1], rounds[4], rounds[5]])
        self.assertEqual(module.alike(rounds[2:3]), [])

    def test_a_call_is_not_in_each_piece_of_several_ranks(self):
        machine = calibrate().Machine(BUILD, 1)
        found = {"barrier": 4e-7, "work": 1.2e-7, "call": 9e-8, "turn": 1, "shared": 0,
                 "kernel": 0, "slower": 1}
        curves = {jobs: self.CURVE for jobs in range(1, 1 + max(2, machine.cores))}
        self.assertEqual([machine.profile(4096, ranks, found, curves)["work"] for ranks in
                          (1, 2, 8)], ["0.120us", "0.030us", "0.030us"])
        found["call"] = 2e-7
        self.assertEqual(machine.profile(4096, 2, found, curves)["work"], "0.000us")

    def test_the_kernel_takes_longer_of_every_byte(self):
        machine = calibrate().Machine(BUILD, 1)
        found = {"barrier": 4e-7, "work": 1.2e-7, "call": 9e-8, "turn": 1, "shared": 0,
                 "kernel": 0, "slower": 1}
        curve = {size: rate * 1e8 for size, rate in self.CURVE.items()}
        curves = {jobs: curve for jobs in range(1, 1 + max(2, machine.cores))}
        lines = machine.profile(4096, 2, found, curves)
        self.assertNotIn("attach-bandwidth", lines)
        core = float(lines["core-bandwidth"].removesuffix("GB/s"))
        found["kernel"] = 1e-9 / core
        self.assertEqual(machine.profile(4096, 2, found, curves)["attach-bandwidth"],
                         f"{core / 2:.3f}GB/s")
        self.assertNotIn("attach-bandwidth", machine.profile(4096, 1, found, curves))

    def test_rounds(self):
        middle = calibrate().middle
        self.assertEqual([middle(name)((3, 1, 2)) for name in
                          ("turn", "work", "call", "barrier", (2, 8 << 10), (1, 16 << 10))],
                         [1, 1, 1, 2, 3, 2])

    def test_between_lengths(self):
        rate_at = calibrate().rate_at
        self.assertEqual([round(rate_at(self.CURVE, size << 10)) for size in
                          (1, 64, 512, 724, 1024, 1 << 20)], [240, 240, 240, 170, 120, 40])

    def test_what_ranks_touch(self):
        vector_of = calibrate().vector_of
        self.assertEqual(vector_of(100, 1, 1), 100)  # In and out.
        self.assertEqual(vector_of(100, 8, 2), 600)  # And slots, by two that copy.


class Calibrate(Folder):
    def test_a_profile_for_each_cell(self):
        path = self.out / "all.json"
        done = tool("calibrate", "--build", BUILD, "--out", self.out, "--begin", "4K", "--end",
                    "16K", "--ranks", "1,2", "--iterations", 2, "--rounds", 2,
                    "--tries", 2, "--json", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(path.read_text())
        self.assertEqual([(cell["size"], cell["ranks"]) for cell in found["cells"]],
                         [(4096, 1), (4096, 2), (16384, 1), (16384, 2)])
        for name in "4K-1", "4K-2", "16K-1", "16K-2":
            sim = subprocess.run([BUILD / "tools" / "rubato-sim", "barrier", "-n", "2",
                                  "--profile", self.out / f"{name}.profile", "--json", "-"],
                                 capture_output=True, text=True, check=True)
            network = json.loads(sim.stdout)["network"]
            self.assertGreater(network["core_bandwidth"], 0)
            self.assertGreaterEqual(network["memory_bandwidth"], network["core_bandwidth"])
            self.assertGreater(network["node_send_ns"], 0)
            self.assertGreater(network["turn_ns"], 0)
            self.assertGreater(network["cache_bytes"], 0)
            self.assertGreater(network["cached_bandwidth"], 0)
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
