#!/usr/bin/env python3
"""test_doc_names.py SOURCE-ROOT PROGRAM... -- the documents name no option that no program has, and
no variable that is no setting.

Options are those of --help, of every command, and those of the scripts. Settings are the rows of
base/config.h; that each has its line in docs/tuning.md is test_tuning.py's. Tests read variables of
their own."""

import pathlib
import re
import sys
import unittest

from programs import main, run

ROOT, PROGRAMS = pathlib.Path(sys.argv[1]), sys.argv[2:]
del sys.argv[1:]
COMMANDS = {"rubato-bench": ("partial", "lagged"),
            "rubato-sim": ("partial", "lagged", "laws", "choice")}
OPTION = r"(?<![\w-])--[a-z][a-z0-9-]*"
VARIABLE = r"\bRUBATO_[A-Z][A-Z0-9_]*"
# Of Docker, meson and pkg-config.
FOREIGN = {"--cflags", "--cpus", "--libdir", "--libs", "--logdir", "--prefix", "--static",
           "--suite", "--variable"}


def options(text):
    return set(re.findall(OPTION, text))


def documents():
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))):
        code = re.findall(r"`[^`\n]+`|^(?:```.*?^```|    .*?)$", path.read_text(), re.M | re.S)
        yield path.relative_to(ROOT), "\n".join(code)


class Names(unittest.TestCase):
    def test_options(self):
        known = set(FOREIGN)
        for program in PROGRAMS:
            for words in [], *([word] for word in COMMANDS.get(pathlib.Path(program).name, ())):
                known |= options(run(program, *words, "--help").stdout.decode())
        for script in (*ROOT.glob("tools/*"), *ROOT.glob("tools/reproduction/*"),
                       *ROOT.glob("tests/**/*.py"), *ROOT.glob("trainer/report/*.py"),
                       ROOT / "tests/rdma-vm/run"):
            if script.is_file():
                known |= options(script.read_text())
        self.assertTrue({"--policy", "--faults", "--seeds", "--lr", "--bind"} <= known)
        seen = set()
        for path, code in documents():
            with self.subTest(str(path)):
                self.assertEqual(options(code) - known, set())
            seen |= options(code)
        self.assertGreater(len(seen & known - FOREIGN), 100)

    def test_variables(self):
        settings = set(re.findall(VARIABLE, (ROOT / "base/config.h").read_text()))
        header = set(re.findall(VARIABLE, "".join(
            path.read_text() for path in ROOT.glob("include/*.h"))))
        of_tests = set(re.findall(r'environ\.get\("(RUBATO_[A-Z_]+)"\)', "".join(
            path.read_text() for path in ROOT.glob("tests/**/test_*.py"))))
        self.assertIn("RUBATO_TIMEOUT", settings)
        self.assertIn("RUBATO_TORCH", of_tests)
        for path, code in documents():
            with self.subTest(str(path)):
                named = set(re.findall(VARIABLE, code))
                self.assertEqual(named - settings - header - of_tests, set())


if __name__ == "__main__":
    main()
