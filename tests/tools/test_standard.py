#!/usr/bin/env python3
"""test_standard.py RUBATO-BENCH RUBATO-SIM RUBATO-RUN RUBATO-INFO [RUBATO-TRAIN] -- programs whose
standard descriptors are closed, or lead to a device that is full: none hangs, and what could not be
printed is said in one line, and is a failure."""

import os
import subprocess
import sys
import unittest

from programs import DEADLINE_S, main

BENCH, SIM, RUN, INFO, *TRAIN = sys.argv[1:]
del sys.argv[1:]

# What prints little, and writes nothing else.
PRINTS = {
    "run": [RUN, "-n", "2", "echo", "hello"],
    "run, version": [RUN, "--version"],
    "info": [INFO],
    "info, help": [INFO, "--help"],
    "info, json": [INFO, "--json", "-"],
    "bench": [BENCH, "allreduce", "-n", "2", "-b", "8", "-e", "8", "-t", "1"],
    "bench, json": [BENCH, "allreduce", "-n", "2", "-b", "8", "-e", "8", "-t", "1", "--json", "-"],
    "sim": [SIM, "allreduce", "-n", "4", "-b", "8", "-e", "8"],
}
if TRAIN:
    TRAINS = [*TRAIN, "--model", "logistic", "--data", "synthetic:64x4", "--steps", "2", "--batch",
              "4"]
    PRINTS |= {"train": [*TRAINS, "-n", "2"],
               "train, simulated": [*TRAINS, "-n", "2", "--simulate"],
               "train, help": [*TRAIN, "--help"]}


def run(words, **more):
    """The shell's redirections: `closed` lists descriptors."""
    closed = more.pop("closed", ())
    with open("/dev/full", "wb") as full:
        out = full if more.pop("full", False) else subprocess.PIPE
        return subprocess.run(words, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE,
                              timeout=DEADLINE_S,
                              preexec_fn=lambda: [os.close(fd) for fd in closed])


class Standard(unittest.TestCase):
    def test_they_print(self):
        for name, words in PRINTS.items():
            with self.subTest(name):
                got = run(words)
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertNotEqual(got.stdout, b"")

    def lost(self, words, **more):
        got = run(words, **more)
        self.assertEqual(got.returncode, 1, got.stderr)
        lines = got.stderr.decode().splitlines()
        self.assertRegex(lines[0], r"^(\[0\] )?rubato-\w+: (standard output|the results) could not "
                         "be written")
        # Of a rank the launcher says a second one.
        self.assertLessEqual(len(lines), 2 if "rubato-bench" in lines[0] else 1, lines)

    def test_a_full_device_is_told(self):
        for name, words in PRINTS.items():
            with self.subTest(name):
                self.lost(words, full=True)

    def test_a_closed_output_is_told(self):
        for name, words in PRINTS.items():
            with self.subTest(name):
                self.lost(words, closed=(1,))
            with self.subTest(name + ", input closed, too"):
                self.lost(words, closed=(0, 1))

    def test_a_closed_error_disturbs_nothing(self):
        for name, words in PRINTS.items():
            with self.subTest(name):
                got = run(words, closed=(0, 2))
                self.assertEqual(got.returncode, 0)
                self.assertNotEqual(got.stdout, b"")


if __name__ == "__main__":
    main()
