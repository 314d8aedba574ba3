#!/usr/bin/env python3
"""test_only.py BUILD-FOLDER FAILING-SEEDS -- TEST_ONLY picks single tests in every test program,
and a name that is none's is a failure everywhere; who fails says its seed, TEST_SEED takes it,
and SEEDS takes several."""

import json
import pathlib
import re
import sys
import unittest

from programs import main, run

BUILD, FAILING = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
NONE = {"TEST_ONLY": "no_test_has_this_name"}
# What has no single tests to pick: programs with words of their own, and single checks.
WHOLE = {"soak", "laws_mutants", "mpi.sh", "hosts.sh", "interfaces.sh", "campaign.sh", "laws.sh",
         "tidy", "rooms", "overlap.py", "reference.py", "test_replay.py", "test_tuning.py",
         "test_algorithms.py", "test_state.py", "test_hot_paths.py", "test_verbs_paths.py",
         "run", "ends"}  # Of tests/rdma-vm: they start guests.


def built(command):
    """Whether all is there that it names of the build: a suite builds no more than it runs."""
    return all(pathlib.Path(word).exists() for word in command if word.startswith(f"{BUILD}/"))


def tests():
    return json.loads((BUILD / "meson-info/intro-tests.json").read_text())


def programs():
    """The command of each test program that is built, by the name of its file."""
    found = {}
    for test in tests():
        files = [word for word in test["cmd"][:3] if pathlib.Path(word).is_file()
                 and not pathlib.Path(word).name.startswith("python")]
        if files and built(test["cmd"]):
            found[pathlib.Path(files[0]).name] = test["cmd"]
    return found


class Only(unittest.TestCase):
    def test_a_name_that_no_test_has_fails(self):
        judged, everything = 0, all(built(test["cmd"]) for test in tests())
        for name, command in programs().items():
            if name in WHOLE:
                continue
            with self.subTest(name):
                got = run(*command, env=NONE)
                if got.returncode == 77:
                    continue  # This machine lacks what it needs.
                self.assertEqual(got.returncode, 1, (got.stdout, got.stderr))
                self.assertIn(b"no test has run", got.stderr)
                judged += 1
        self.assertGreater(judged, 20 if everything else 4)

    def test_one_test_runs_alone(self):
        wire = programs()["test_base_wire"]
        names = re.findall(r"START_TEST\((\w+)\)",
                           (pathlib.Path(__file__).parents[1] / "base/test_wire.c").read_text())
        for only, count in (names[0], 1), ("*", len(names)), (names[0][:-1] + "?", 1):
            got = run(*wire, env={"TEST_ONLY": only})
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn(f"Checks: {count},".encode(), got.stdout)

    def test_checks_own_filters_that_pick_nothing_fail(self):
        wire = programs()["test_base_wire"]
        self.assertEqual(run(*wire, env={"CK_RUN_CASE": "wire"}).returncode, 0)
        self.assertEqual(run(*wire, env={"CK_RUN_CASE": "nonsense"}).returncode, 1)


class Seeds(unittest.TestCase):
    def test_a_failure_says_its_seed(self):
        got = run(FAILING)
        self.assertEqual(got.returncode, 1)
        said = [line for line in got.stderr.decode().splitlines() if line.startswith("again: ")]
        self.assertEqual(said, ["again: TEST_ONLY=asserts TEST_SEED=7",
                                "again: TEST_ONLY=crashes TEST_SEED=3"])

    def test_one_seed_is_taken_alone(self):
        for seed, status in ("6", 0), ("7", 1), ("18446744073709551615", 0), ("x", 1), ("-1", 1):
            env = {"TEST_ONLY": "asserts", "TEST_SEED": seed}
            self.assertEqual(run(FAILING, env=env).returncode, status, seed)
        self.assertEqual(run(FAILING, env={"TEST_ONLY": "passes", "TEST_SEED": "5"}).returncode, 0)

    def test_seeds_are_taken_by_their_first_and_number(self):
        end = str(2**64 - 1)
        for seeds, said in (("5:3", "5 to 7, 3"), ("0:10", "0 to 9, 10"), (f"{end}:1", f"{end} to"),
                            ("900:1", "900 to 900, 1")):
            got = run(FAILING, env={"TEST_ONLY": "passes", "SEEDS": seeds})
            self.assertEqual((got.returncode, said in got.stderr.decode()), (0, True), got.stderr)
        for seeds, status in ("0:7", 0), ("0:8", 1), ("8:1000", 0), ("7:1", 1):
            got = run(FAILING, env={"TEST_ONLY": "asserts", "SEEDS": seeds})
            self.assertEqual(got.returncode, status, seeds)
            self.assertEqual(b"again: TEST_ONLY=asserts TEST_SEED=7\n" in got.stderr, status == 1)
        for seeds in ("", "5", "5:", ":5", "5:0", "-1:2", "5:-1", "5:3x", "x:3", " 5:3", "5: 3",
                      "18446744073709551615:2", "18446744073709551616:1"):
            got = run(FAILING, env={"TEST_ONLY": "passes", "SEEDS": seeds})
            self.assertEqual(got.returncode, 1, seeds)
            self.assertIn(f"SEEDS takes FIRST:COUNT, not '{seeds}'".encode(), got.stderr)
        both = {"TEST_ONLY": "asserts", "SEEDS": "0:10", "TEST_SEED": "6"}
        self.assertEqual(run(FAILING, env=both).returncode, 0)

    def test_side_by_side_each_test_runs_once(self):
        for processes in 1, 2, 4, 12:
            got = run(FAILING, processes)
            said = got.stderr.decode()
            self.assertEqual(got.returncode, 1, processes)
            self.assertEqual(sorted(re.findall(r"number (\d+)", said), key=int),
                             [str(number) for number in range(3, 10)], processes)
            self.assertEqual(set(re.findall(r"again: .*", said)),
                             {"again: TEST_ONLY=asserts TEST_SEED=7",
                              "again: TEST_ONLY=crashes TEST_SEED=3"}, processes)
        for name, status in ("passes", 0), ("says_its_number", 0), ("asserts", 1):
            env = {"TEST_ONLY": name}
            self.assertEqual(run(FAILING, 4, env=env).returncode, status, name)
        self.assertEqual(run(FAILING, 4, env={"TEST_ONLY": "none"}).returncode, 1)


if __name__ == "__main__":
    main()
