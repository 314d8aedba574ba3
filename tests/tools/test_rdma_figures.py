#!/usr/bin/env python3
"""test_rdma_figures.py FIGURES -- tests/rdma-vm/figures without a guest: what ends a run, and what
becomes of turns."""

import contextlib
import io
import sys
import unittest

from programs import main, module

FIGURES = sys.argv.pop(1)


class Runs(unittest.TestCase):
    def setUp(self):
        self.figures = module(FIGURES)
        self.figures.LOOK_S, self.figures.STILL_S = 0.05, 1

    def run_of(self, script):
        return self.figures.output(["sh", "-c", script])

    def test_what_it_says_is_kept(self):
        self.assertEqual(self.run_of("echo 5; echo 6 >&2"), "5\n6\n")

    def test_a_failure_says_itself(self):
        with self.assertRaisesRegex(SystemExit, "(?s)status 3.*broken"):
            self.run_of("echo broken; exit 3")

    def test_what_does_not_move_is_ended(self):
        with self.assertRaisesRegex(SystemExit, "(?s)0 packets within 1 s.*stuck"):
            self.run_of("echo stuck; sleep 1000 & wait")

    def test_few_packets_are_no_move(self):
        count = iter(range(1000000))
        self.figures.packets = lambda: next(count)
        with self.assertRaisesRegex(SystemExit, "packets within 1 s"):
            self.run_of("sleep 1000")

    def test_what_moves_may_take_longer(self):
        count = iter(range(0, 10 ** 12, 10 ** 5))
        self.figures.packets = lambda: next(count)
        self.assertEqual(self.run_of("sleep 3; echo late"), "late\n")


class Turns(unittest.TestCase):
    def setUp(self):
        self.figures = module(FIGURES)

    def turns_of(self, script):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            turns, status = self.figures.turns_of(["sh", "-c", script])
        return turns, status, said.getvalue()

    def test_they_are_taken_and_the_rest_is_told(self):
        self.assertEqual(self.turns_of("""echo one; echo '{"a": 1}'; echo '{"a": 2}'"""),
                         ([{"a": 1}, {"a": 2}], 0, "one\n"))

    def test_whole_ones_are_kept_if_a_later_one_fails(self):
        self.assertEqual(self.turns_of("""echo '{"a": 1}'; echo bad; exit 7"""),
                         ([{"a": 1}], 7, "bad\n"))

    def test_silence_ends_it(self):
        self.figures.SILENT_S = 1
        turns, status, said = self.turns_of("""echo '{"a": 1}'; exec sleep 1000""")
        self.assertEqual((turns, status), ([{"a": 1}], 1))
        self.assertIn("said nothing for 1 s", said)

    def test_the_table_compares_medians(self):
        names = {name for row in self.figures.ROWS for name in row[1:3]}
        turns = [dict.fromkeys(names, 100.0) for _ in range(3)]
        for turn, value in zip(turns, (90.0, 130.0, 140.0)):
            turn["verbs 8 B"] = value
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            self.figures.table(turns)
        line = said.getvalue().splitlines()[1]
        self.assertRegex(line, r"130 +ib_write_lat +100 +1\.30 +\[0\.90, 1\.40\] +<= 1\.2 not met$")

    def test_what_a_turn_measures_is_what_the_table_has(self):
        names = {name for row in self.figures.ROWS for name in row[1:3]}
        self.assertEqual({name for own, _, _ in self.figures.steps("build") for name in own}, names)


if __name__ == "__main__":
    main()
