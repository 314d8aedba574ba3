#!/usr/bin/env python3
"""test_example_nccl.py RUBATO-RUN EXAMPLE -- examples/nccl.c on a driver and an NCCL without a
device: two groups of two ranks, four of one, one of four; and what it refuses."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/tools"))

from programs import main, run  # noqa: E402

RUN, EXAMPLE = sys.argv.pop(1), sys.argv.pop(1)


class Example(unittest.TestCase):
    def job(self, *group):
        return run(RUN, "-n", 4, EXAMPLE, *group)

    def test_sums_and_averages(self):
        """Rank r has r + step: sums within groups, averages over them."""
        for size, first in (1, 1.5), (2, 3), (4, 6):
            got = self.job(size)
            self.assertEqual(got.returncode, 0, got.stderr.decode())
            said = re.findall(r"step (\d): (\S+) to (\S+)", got.stdout.decode())
            want = [(str(step), f"{first + size * step:g}", f"{first + size * step:g}")
                    for step in range(3)]
            self.assertEqual(said, want)

    def test_ranks_that_are_no_groups(self):
        got = self.job(3)
        self.assertNotEqual(got.returncode, 0)
        self.assertIn("4 ranks are no groups of 3", got.stderr.decode() + got.stdout.decode())

    def test_is_short(self):
        self.assertLess(len((ROOT / "examples/nccl.c").read_text().splitlines()), 100)


if __name__ == "__main__":
    main()
