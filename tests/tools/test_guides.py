#!/usr/bin/env python3
"""test_guides.py SOURCE-ROOT BUILD-ROOT -- what the guides in docs/ tell a reader to type works:
the blocks of each that are marked as shell run in order, in a folder where a checkout seems to
be."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from programs import main

ROOT, BUILD = map(pathlib.Path, sys.argv[1:3])
del sys.argv[1:]
RUN = {"guide-bench": 6, "guide-train": 5, "guide-research": 3} # Guide -> blocks that are run.


def blocks(guide):
    return re.findall(r"^```sh\n(.*?)^```", (ROOT / f"docs/{guide}.md").read_text(), re.M | re.S)


class Guides(unittest.TestCase):
    def follow(self, guide):
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "build").symlink_to(BUILD)
            for block in blocks(guide):
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", block], cwd=folder,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=subprocess.STDOUT, timeout=200)
                said = done.stdout.decode()
                self.assertEqual(done.returncode, 0, block + said)
                self.assertNotEqual(said, "", block)
            return {path.name for path in folder.iterdir()}

    def test_measuring(self):
        self.assertEqual(self.follow("guide-bench"), {"build", "result.json"})

    def test_training(self):
        self.assertEqual(self.follow("guide-train"),
                         {"build", "sync", "waits", "eager", "simulated", "report.html"})

    def test_research(self):
        self.assertEqual(self.follow("guide-research"), {"build"})

    def test_all_are_followed(self):
        """Those of C and PyTorch by tests of their own (package, torch)."""
        there = {path.stem for path in ROOT.glob("docs/guide-*.md")}
        self.assertEqual(there, {*RUN, "guide-c", "guide-pytorch"})
        self.assertEqual({guide: len(blocks(guide)) for guide in there if blocks(guide)}, RUN)


if __name__ == "__main__":
    main()
