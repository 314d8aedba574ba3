#!/usr/bin/env python3
"""test_verses.py TOOLS/VERSES -- the text for the lstm: a verse a line, without its place."""

import pathlib
import shutil
import sys
import tempfile
import unittest

from programs import main, run

VERSES = pathlib.Path(sys.argv.pop(1))


class Verses(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name, "verses.txt")

    def make(self, *words):
        got = run(sys.executable, VERSES, self.file, *words)
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        return self.file.read_text().split("\n")

    def test_whole(self):
        lines = self.make()
        self.assertEqual(len(lines), 31102 + 1)  # The last ends, too.
        self.assertEqual(lines[0], "In the beginning God created the heaven and the earth.")
        self.assertTrue(lines[-2].startswith("The grace of our Lord Jesus Christ"))
        self.assertEqual(lines[-1], "")
        self.assertEqual(max(map(len, lines)), 528)

    def test_some(self):
        whole, some = self.make(), self.make(100)
        self.assertEqual(len(some), 100 + 1)
        self.assertEqual(some[1], whole[311])

    def test_usage(self):
        for words in [], ["a", "b", "c"], [self.file, "many"], [self.file, "0"]:
            got = run(sys.executable, VERSES, *words)
            self.assertEqual(got.returncode, 2, words)
            self.assertIn(b"usage", got.stderr)
            self.assertFalse(self.file.exists())

    def test_no_program(self):
        got = run(sys.executable, VERSES, self.file, env={"PATH": "/nowhere"})
        self.assertEqual(got.returncode, 1)
        self.assertIn(b"bible-kjv", got.stderr)
        self.assertEqual(got.stderr.count(b"\n"), 1)


if __name__ == "__main__":
    if shutil.which("bible") is None:
        print("the program bible (package bible-kjv) is not installed")
        sys.exit(77)
    main()
