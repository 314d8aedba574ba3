#!/usr/bin/env python3
"""test_suite.py RUBATO-BENCH -- rubato-bench --suite: whole files, resumed runs, what they say."""

import json
import pathlib
import sys
import tempfile
import unittest
import xml.etree.ElementTree

from programs import main, run

BENCH = sys.argv.pop(1)

# A rubato-bench that has one more peer than ours, and notes how it was called.
FAKE = """#!/usr/bin/env python3
import json, pathlib, sys
calls = pathlib.Path(__file__).with_name("calls")
with calls.open("a") as file:
    print(*sys.argv[1:], file=file)
if calls.with_name("fail-at").exists() and calls.read_text().count(chr(10)) == int(
        calls.with_name("fail-at").read_text()):
    sys.exit("it is broken")
size, end, factor = (int(sys.argv[sys.argv.index(word) + 1]) for word in ("-b", "-e", "-f"))
buffers = sys.argv[sys.argv.index("--buffers") + 1]
rows = []
while size <= end:
    rows.append({"impl": "rubato", "size": size, "busbw": 4.0,
                 "time_us": {"median": 2.5 * size, "whole": 4 * size}})
    if buffers == "plain":
        rows.append(dict(rows[-1], impl="mpich",
                         rubato_over_it={"ratio": 0.5, "low": 0.25, "high": 0.75},
                         rubato_over_it_whole={"ratio": 0.6, "low": None, "high": None}))
    size *= factor
print(json.dumps({"version": "1.2.3", "bound": calls.with_name("bound").exists(), "results": rows,
                  "peers": [{"name": "mpich", "library": "MPICH of a test"}]}))
"""


class Suite(unittest.TestCase):
    def setUp(self):
        self.temporary = tempfile.TemporaryDirectory()
        self.root = pathlib.Path(self.temporary.name)
        self.out = self.root / "out"
        self.fake = self.root / "bench"
        self.fake.write_text(FAKE)
        self.fake.chmod(0o755)

    def tearDown(self):
        self.temporary.cleanup()

    def suite(self, *words, status=0):
        # The last --bench counts.
        got = run(BENCH, "--suite", self.out, "--bench", self.fake, "--end", 512, *words)
        self.assertEqual(got.returncode, status, got.stderr)
        return got.stdout.decode()

    def calls(self):
        return (self.root / "calls").read_text().splitlines()

    def test_tables_and_plots(self):
        (self.root / "bound").touch()
        self.suite("--ops", "allreduce,broadcast", "--ranks", "1,3", "--peer", "mpich")
        # Two operations, two numbers of ranks, two kinds of buffers; sizes 8, 64 and 512 in one.
        self.assertEqual(len(self.calls()), 2 * 2 * 2)
        self.assertEqual({call for call in self.calls() if "--peer" in call},
                         {call for call in self.calls() if "plain" in call})
        self.assertTrue(all(("--in-place" in call) == call.startswith("allreduce")
                            for call in self.calls()))
        text = (self.out / "README.md").read_text()
        self.assertIn("- mpich: MPICH of a test", text)
        self.assertIn("rubato 1.2.3; date 20", text)
        self.assertIn("| 64 B | 160 | 160 | 160; 0.5 (0.25-0.75) |", text)
        for name in "allreduce-1", "allreduce-3", "broadcast-1", "broadcast-3":
            self.assertIn(f"]({name}.svg)", text)
            picture = xml.etree.ElementTree.parse(self.out / f"{name}.svg")
            lines = [e for e in picture.iter() if e.get("class") == "line"]
            self.assertEqual(len(lines), 3 * 3) # Twice, and in the key.

    def test_ranks_that_share_cores_are_measured_as_a_whole(self):
        self.suite("--ops", "allreduce", "--ranks", "3", "--peer", "mpich")
        text = (self.out / "README.md").read_text()
        self.assertIn("allreduce, 3 ranks (not bound)", text)
        self.assertIn("| 64 B | 256 | 256 | 256; 0.6 |", text)

    def test_what_is_there_is_not_measured_again(self):
        words = ["--ops", "allreduce", "--ranks", "1,2"]
        (self.root / "fail-at").write_text("3") # In the third of four cells.
        self.assertIn("2 cells", self.suite(*words, status=1))
        names = sorted(path.name for path in (self.out / "cells").iterdir())
        self.assertEqual(names, ["allreduce-1-plain.json", "allreduce-1-registered.json"])
        before = (self.out / "cells/allreduce-1-plain.json").read_bytes()
        (self.root / "fail-at").unlink()
        said = self.suite(*words)
        self.assertEqual(said.count("is there"), 2)
        self.assertEqual(len(self.calls()), 3 + 2)
        self.assertEqual((self.out / "cells/allreduce-1-plain.json").read_bytes(), before)

    def test_a_damaged_cell_is_measured_again(self):
        words = ["--ops", "allreduce", "--ranks", "1,2"]
        self.suite(*words)
        cells = self.out / "cells"
        good = (cells / "allreduce-1-plain.json").read_text()
        for damage in "", good[:100], "{}", "[1]", good.replace('"time_us"', '"time"'):
            with self.subTest(damage[:9]):
                (cells / "allreduce-1-plain.json").write_text(damage)
                got = run(BENCH, "--suite", self.out, "--bench", self.fake, "--end", 512, *words)
                self.assertEqual(got.returncode, 0, got.stderr)
                self.assertEqual(got.stderr.decode().count("\n"), 1)
                self.assertIn("allreduce-1-plain.json is damaged: it is measured again",
                              got.stderr.decode())
                self.assertEqual(got.stdout.decode().count("is there"), 3)
                self.assertEqual((cells / "allreduce-1-plain.json").read_text(), good)
        (cells / "of-another-grid.json").write_text("")
        got = run(BENCH, "--suite", self.out, "--bench", self.fake, "--end", 512, *words)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn("of-another-grid.json is damaged: it is left out", got.stderr.decode())

    def test_sizes_of_other_iterations_run_apart(self):
        self.suite("--ops", "allgather", "--ranks", 1, "--end", 1 << 20)
        self.assertEqual([call.split()[4:8:2] + call.split()[11:13] for call in self.calls()],
                         [["8", "32768", "-t", "200"], ["262144", "262144", "-t", "60"]] * 2)

    def test_with_the_real_one(self):
        got = run(BENCH, f"--suite={self.out}", "--ops", "sendrecv,barrier", "--ranks", 2, "--end",
                  8, "--iterations", 2)
        self.assertEqual(got.returncode, 0, got.stderr)
        cell = json.loads((self.out / "cells/sendrecv-2-registered.json").read_text())
        self.assertEqual([(row["impl"], row["wrong"]) for row in cell["rows"]], [("rubato", 0)])
        self.assertTrue(cell["processor"] and cell["kernel"] and cell["cores"] > 0)
        self.assertNotIn("host", cell)
        cell = json.loads((self.out / "cells/sendrecv-2-plain.json").read_text())
        self.assertEqual([(row["impl"], row["wrong"]) for row in cell["rows"]],
                         [("rubato", 0), ("bound", 0)])
        self.assertIn("stroke-dasharray", (self.out / "sendrecv-2.svg").read_text())

    def test_usage(self):
        (self.root / "file").touch()
        for words in ([], ["--nonsense"], [self.out, "--factor", 1], [self.out, "--end", 4],
                      [self.out, "--ranks", "2,x"], [self.out, "--ranks", ""],
                      [self.out, "--ranks", 0], [self.out, "--iterations", -1],
                      [self.root / "file"], [self.root / "file" / "below"]):
            with self.subTest(words):
                got = run(BENCH, "--suite", *words)
                self.assertEqual(got.returncode, 2, got.stderr)
                self.assertEqual(got.stderr.count(b"\n"), 1, got.stderr)
        self.assertIn(b"usage: rubato-bench --suite", run(BENCH, "--suite", "--help").stdout)


if __name__ == "__main__":
    main()
