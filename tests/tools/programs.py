"""programs.py -- what the tests of the tools share: running them, and watching processes end."""

import importlib.machinery
import importlib.util
import os
import re
import select
import subprocess
import sys
import unittest

DEADLINE_S = 60  # Of every wait; nothing here should take a tenth of it.
# What a policy's number may be among six ranks, by the letter of its form: two that differ in what
# comes of them.
POLICY_NUMBERS = {"K": ("3", "5"), "S": ("2", "3"), "T": ("200us", "3ms")}


class Watch:
    """Holds on to processes by descriptor, so that a number used again cannot fool us."""

    def __init__(self, pids):
        self.fds = {pid: os.pidfd_open(pid) for pid in pids}

    def alive(self, timeout_s=DEADLINE_S):
        """Waits until all have ended; returns those that have not."""
        left = dict(self.fds)
        poller = select.poll()
        for fd in left.values():
            poller.register(fd, select.POLLIN)
        while left:
            events = poller.poll(timeout_s * 1000)
            if not events:
                break
            for fd, _ in events:
                poller.unregister(fd)
                left = {pid: other for pid, other in left.items() if other != fd}
        for fd in self.fds.values():
            os.close(fd)
        return sorted(left)


def module(path):
    """A program of Python as a module, made anew; nothing is written beside it."""
    loader = importlib.machinery.SourceFileLoader(os.path.basename(path).replace("-", "_"),
                                                  str(path))
    made = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    sys.dont_write_bytecode = True
    loader.exec_module(made)
    return made


def run(*command, stdin=subprocess.DEVNULL, env=None, **more):
    """Runs to the end; output as bytes."""
    return subprocess.run(
        [str(word) for word in command],
        stdin=None if "input" in more else stdin,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=DEADLINE_S,
        env={**os.environ, **(env or {})},
        **more,
    )


def start(*command, env=None, **more):
    return subprocess.Popen(
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, **(env or {})},
        **more,
    )


def policy_forms(forms):
    """Of each form ("adaptive[:K]") its word, two numbers or none, and whether it needs one."""
    for form in forms:
        word, colon, letter = re.fullmatch(r"(\w+)(\[?:)?(\w*)\]?", form).groups()
        assert not colon or letter in POLICY_NUMBERS, (
            f"the form {form} has the value {letter}: add two to POLICY_NUMBERS")
        yield word, POLICY_NUMBERS.get(letter, ()), colon == ":"


def takes(text):
    """What a refusal says that the option takes; None: it is no choice among words."""
    found = re.search(r"(?:takes one of|is unknown; it takes) (.*?)(?:, not '|$)", text.strip())
    return None if found is None else found[1].split(", ")


def python(source, *arguments):
    """The command that runs a few lines of Python as a rank."""
    return [sys.executable, "-u", "-c", source, *map(str, arguments)]


def check_usage(case, program, *words, says):
    """A bad option: exit 2, one line on standard error that begins with the program's name."""
    got = run(program, *words)
    name = os.path.basename(program)
    text = got.stderr.decode()
    case.assertEqual(got.returncode, 2, text)
    case.assertEqual(got.stdout, b"")
    case.assertEqual(text.count("\n"), 1, text)
    case.assertTrue(text.startswith(name + ": "), text)
    case.assertIn(says, text)


def main():
    """The end of a test program: all its tests, or those that TEST_ONLY names (test_x, Class.test_x
    or a pattern of these); it fails where none has run."""
    loader = unittest.TestLoader()
    only = os.environ.get("TEST_ONLY")
    if only is not None:
        loader.testNamePatterns = [f"*.{only}"]
    done = unittest.main(testLoader=loader, exit=False)
    if done.result.testsRun == 0:
        sys.exit("no test has run: does TEST_ONLY name one?")
    sys.exit(not done.result.wasSuccessful())
