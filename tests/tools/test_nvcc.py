"""test_nvcc.py SCRIPT -- cuda/nvcc.py: what is taken again, and what is not, by a compiler that
writes what it reads and counts how often it is called."""

import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from programs import main

SCRIPT = pathlib.Path(sys.argv.pop(1)).resolve()
COMPILER = """#!/bin/sh
[ "$1" != --version ] || { echo release 1; exit; }
echo called >>calls
for word; do
    case $last in
    -o) out=$word ;;
    -MF) rule=$word ;;
    esac
    last=$word
done
grep -q wrong source && exit 3
cat source header >"$out"
[ -z "$rule" ] || echo "$out: source \\\\
 header" >"$rule"
"""


class Nvcc(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for build in ("one", "two"):
            self.write("source", "s", build)
            self.write("header", "h", build)
            self.write("calls", "", build)
        self.write("nvcc", COMPILER, ".")
        (self.root / "nvcc").chmod(0o755)

    def write(self, name, text, build="two"):
        (self.root / build).mkdir(exist_ok=True)
        (self.root / build / name).write_text(text)

    def read(self, name, build="two"):
        return (self.root / build / name).read_text()

    def make(self, build="two", words=("-ptx",), cache="kept", status=0):
        env = {key: value for key, value in os.environ.items() if key != "KERNELS_CACHE"}
        if cache:
            env["KERNELS_CACHE"] = str(self.root / cache)
        got = subprocess.run([sys.executable, SCRIPT, "out", "rule", "../nvcc", *words, "-o", "out",
                              "source"], cwd=self.root / build, env=env, timeout=60)
        self.assertEqual(got.returncode, status)
        if status == 0:
            self.assertEqual(self.read("out", build),
                             self.read("source", build) + self.read("header", build))
            self.assertIn("source", self.read("rule", build))

    def calls(self, build="two"):
        return self.read("calls", build).count("called")

    def test_another_build_takes_it(self):
        self.make("one")
        self.make("two")
        self.assertEqual((self.calls("one"), self.calls("two")), (1, 0))
        self.assertEqual(self.read("rule", "one"), self.read("rule", "two"))

    def test_any_file_of_it_that_changes_counts(self):
        self.make("one")
        for name in ("source", "header"):
            self.write(name, "new")
            self.make()
        self.assertEqual(self.calls(), 2)

    def test_other_words_are_another_command(self):
        self.make("one")
        self.make(words=("-ptx", "-w"))
        self.assertEqual(self.calls(), 1)

    def test_what_fails_is_not_kept(self):
        for build in ("one", "two"):
            self.write("source", "wrong", build)
            self.make(build, status=3)
        self.assertEqual(self.calls(), 1)

    def test_what_is_damaged_is_made_again(self):
        self.make("one")
        for path in (self.root / "kept").glob("*.made"):
            path.write_text("half")
        self.make()
        self.assertEqual(self.calls(), 1)

    def test_without_a_folder_nothing_is_kept(self):
        for build in ("one", "two"):
            self.make(build, cache=None)
        self.assertEqual((self.calls("one"), self.calls("two")), (1, 1))

    def test_without_a_rule_the_last_word_is_read(self):
        self.make("one", words=("-fatbin",))
        self.make("two", words=("-fatbin",))
        self.assertEqual(self.calls(), 0)
        self.write("source", "new")
        self.make(words=("-fatbin",))
        self.assertEqual(self.calls(), 1)


if __name__ == "__main__":
    main()
