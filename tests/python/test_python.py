#!/usr/bin/env python3
"""test_python.py FOLDER -- the Python package as a user meets it: a wheel is built, installed by
pip in a fresh environment, and used from outside the tree. What pip gets stays in FOLDER for the
next time. Where there is no package index it is skipped."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/python"
FOLDER = pathlib.Path(sys.argv.pop(1))
sys.path.insert(0, str(ROOT / "tests/tools"))

from ports import hold, number  # noqa: E402
from programs import main, start  # noqa: E402


def build(*command):
    """Part of what a user would type: minutes long, where nothing is in a cache."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900,
                          cwd=FOLDER)
    if done.returncode == 77:
        print(done.stdout.decode())
        sys.exit(77)
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode()


def setUpModule():
    global environment
    FOLDER.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(FOLDER / "wheels", ignore_errors=True)
    # An error as in tools/check's builds: what those have compiled then comes from ccache.
    wheel = build(ROOT / "tools/wheel", FOLDER / "wheels", sys.executable,
                  "-Dwerror=true").strip()
    environment = FOLDER / "environment"
    build(sys.executable, "-m", "venv", "--clear", environment)
    pip = [environment / "bin/python", "-m", "pip", "--disable-pip-version-check", "install",
           "--quiet", "--timeout", "15", "--retries", "1"]
    build(*pip, wheel, "ml_dtypes")


def run(*command, timeout=120, **more):
    """As of a user who has nothing but the environment's programs on the path."""
    with tempfile.TemporaryDirectory() as elsewhere:
        done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=timeout,
                              cwd=elsewhere, env=bare(**more))
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def bare(**more):
    return {"PATH": f"{environment}/bin:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"),
            **more}


def ranks(count, script, *words):
    return run("rubato-run", "-n", count, "python", HERE / script, *words)


class Python(unittest.TestCase):
    def passes(self, got):
        self.assertEqual(got[0], 0, got[1] + got[2])
        return got[1] + got[2]

    def test_alone(self):
        self.assertIn("Ran 9 tests", self.passes(run("python", HERE / "alone.py")))

    def test_collectives(self):
        for count in (1, 2, 4):
            said = self.passes(ranks(count, "ranks_collectives.py"))
            self.assertEqual(said.count("Ran 14 tests"), count)
            self.assertNotIn("skipped", said)

    def test_relaxed(self):
        with tempfile.TemporaryDirectory() as folder:
            ledger = pathlib.Path(folder, "ledger.jsonl")
            for count in (1, 3):
                self.passes(ranks(count, "ranks_relaxed.py", ledger))
                self.assertEqual(os.listdir(folder), ["ledger.jsonl"])
                self.ledger_is_good(ledger.read_text(), count)

    def ledger_is_good(self, text, count):
        lines = [json.loads(line) for line in text.splitlines()]
        average = lines.pop()
        self.assertEqual(average, {"update": len(lines), "kind": "average", "scope": "global",
                                   "ranks": list(range(count)), "step": 4, "period": 4})
        steps = {(rank, step) for line in lines for rank, first, last in line["contributions"]
                 for step in range(first, last + 1)}
        self.assertEqual(steps, {(rank, step) for rank in range(count) for step in range(4)})

    def test_ledger_is_the_programs(self):
        """Python's lines have the fields that rubato-bench's have, which names its policy as
        well."""
        with tempfile.TemporaryDirectory() as folder:
            ours, theirs = pathlib.Path(folder, "ours"), pathlib.Path(folder, "theirs")
            self.passes(ranks(2, "ranks_relaxed.py", ours))
            self.passes(run("rubato-bench", "partial", "-n", 2, "-s", "4K", "-t", 8, "--policy",
                            "solo", "--ledger", theirs))
            fields = [set(json.loads(path.read_text().splitlines()[0])) for path in (ours, theirs)]
        self.assertEqual(fields[0] - {"rate"}, fields[1] - {"policy"})

    def test_programs(self):
        for name in ("bench", "info", "report", "run", "sim", "train"):
            said = self.passes(run(f"rubato-{name}", "--help"))
            self.assertIn(f"rubato-{name}", said)
        self.assertIn("ring", self.passes(
            run("rubato-info", "--prove", "allreduce", "ring", "-n", 4)))

    def job(self, how):
        """Three ranks without a launcher, who would end the others."""
        held = hold()
        self.addCleanup(held.close)
        children = [start(environment / "bin/python", HERE / "rank_fails.py", how, cwd="/",
                          env={"RUBATO_RANK": str(rank), "RUBATO_SIZE": "3",
                               "RUBATO_ROOT": f"127.0.0.1:{number(held)}"}) for rank in range(3)]
        try:
            said = [b"".join(child.communicate(timeout=60)).decode() for child in children]
        finally:
            for child in children:
                if child.poll() is None:
                    child.send_signal(signal.SIGKILL)
                child.communicate()
        return (said[0], said[2]), children[1].returncode

    def test_a_rank_fails(self):
        for how, expected in (("killed", "PeerError -4: .*rank 1"),
                              ("raises", "PeerError -4: .*rank 1"),
                              ("mismatch", "MismatchError -5: rank 1 calls broadcast")):
            with self.subTest(how):
                said, status = self.job(how)
                self.assertEqual(status, -signal.SIGKILL if how == "killed" else 1)
                for words in said:
                    self.assertRegex(words, expected)

    def test_a_rank_does_not_come(self):
        said, status = self.job("never")
        self.assertEqual(status, 0)
        self.assertIn("TimeoutError -3", "".join(said))
        for words in said: # One is told by its clock, the other one perhaps by that one.
            self.assertIn("for rank 1", words)

    def test_other_build_systems_find_the_library(self):
        """A C program against the wheel alone."""
        with tempfile.TemporaryDirectory() as folder:
            source = pathlib.Path(folder, "hello.c")
            source.write_text('#include <rubato.h>\n#include <stdio.h>\n'
                              'int main(void) { puts(rubato_version()); return 0; }\n')
            _, where, _ = run("python", "-c",
                              "import rubato; print(rubato.get_include(), rubato.get_library())")
            include, library = where.split()
            program = pathlib.Path(folder, "hello")
            subprocess.run(["cc", "-I", include, source, library, "-o", program,
                            f"-Wl,-rpath,{pathlib.Path(library).parent}"], check=True, timeout=60)
            self.assertIn("0.1.0", self.passes(run(program)))


if __name__ == "__main__":
    main()
