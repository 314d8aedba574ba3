#!/usr/bin/env python3
"""test_gpu_check.py GPU-CHECK BUILD [trainer] -- tools/gpu-check: what its report says of parts
that pass, fail, hang or are skipped; and parts of it on the driver without a device. With
`trainer` rubato-train has one."""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from programs import main, module

GPU_CHECK, BUILD = sys.argv[1], pathlib.Path(sys.argv[2])
HAS_TRAINER = len(sys.argv) > 3
del sys.argv[1:]

gpu_check = module(GPU_CHECK)


def part(name, script, limit_s=20, whole=False):
    return gpu_check.Part(name, ["sh", "-c", script], limit_s, whole=whole)


class Reports(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def check(self, *parts, seconds=60, first=None):
        """(Exit status, entries by name, report.txt, what was printed.)"""
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = gpu_check.check(parts, [dict(os.environ)] * len(parts), seconds, self.folder,
                                     first=first)
        report = json.loads((self.folder / "report.json").read_text())
        entries = {entry["name"]: entry for entry in report["parts"]}
        return status, entries, (self.folder / "report.txt").read_text(), said.getvalue()

    def test_all_that_can_happen_to_a_part_is_told_apart(self):
        status, entries, text, said = self.check(
            part("fine", "echo 12 GB/s", whole=True),
            part("quiet", "echo nothing of interest"),
            part("wrong", "echo other bits; exit 1"),
            part("crash", "echo about to; kill -SEGV $$"),
            part("absent", "echo no driver; exit 77"),
            gpu_check.Part("none", ["there-is-no-such-program"], 20),
            part("hangs", "echo waits; sleep 1000 & wait", limit_s=1),
        )
        self.assertEqual(status, 1)
        self.assertEqual({name: (entry["status"], entry["why"]) for name, entry in entries.items()},
                         {
                             "fine": ("passed", ""),
                             "quiet": ("passed", ""),
                             "wrong": ("failed", "exit status 1: other bits"),
                             "crash": ("failed", "SIGSEGV: about to"),
                             "absent": ("skipped", "no driver"),
                             "none": ("skipped", "there is no there-is-no-such-program"),
                             "hangs": ("failed", "not over after 1 s: waits"),
                         })
        self.assertIn("2 passed, 3 failed, 2 skipped", text)
        self.assertIn("12 GB/s", text)
        self.assertNotIn("nothing of interest", text)
        self.assertIn("[7/7] hangs ... failed", said)

    def test_what_a_part_started_ends_with_it(self):
        # It has memory to give back: whoever only sent the signal still sees it run.
        holds = "import time; held = bytearray(b'.') * (512 << 20); time.sleep(1000)"
        self.check(part("hangs", f'python3 -c "{holds}" & echo $!; wait', limit_s=5))
        pid = int((self.folder / "hangs.log").read_text())
        state = pathlib.Path(f"/proc/{pid}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] in "ZX")

    def test_what_has_a_process_group_of_its_own_ends_too(self):
        """As Check's tests have."""
        away = "import os, time; os.setpgid(0, 0); print(os.getpid(), flush=True); time.sleep(1000)"
        self.check(part("hangs", f'python3 -c "{away}" & wait', limit_s=5))
        pid = int((self.folder / "hangs.log").read_text())
        state = pathlib.Path(f"/proc/{pid}/stat")
        self.assertTrue(not state.exists() or state.read_text().split()[2] in "ZX")

    def test_no_part_begins_after_its_time(self):
        status, entries, _, _ = self.check(part("first", "sleep 1000"), part("next", "true"),
                                           seconds=1.5)
        self.assertEqual(status, 1)
        self.assertEqual(entries["first"]["status"], "failed")
        self.assertEqual((entries["next"]["status"], entries["next"]["why"]),
                         ("skipped", "no time was left"))

    def test_a_run_in_which_nothing_passed_is_no_success(self):
        self.assertEqual(self.check(part("absent", "exit 77"))[0], 1)
        self.assertEqual(self.check(part("absent", "exit 77"), part("fine", "true"))[0], 0)

    def test_nothing_runs_where_the_build_failed(self):
        broken = {"name": "build", "status": "failed", "seconds": 0.0, "why": "no compiler",
                  "output": ""}
        status, entries, _, _ = self.check(part("fine", "true"), first=lambda left: broken)
        self.assertEqual((status, list(entries)), (1, ["build"]))


class WithoutADevice(unittest.TestCase):
    def test_programs_run_on_the_fake_driver(self):
        parts = ["trainer-losses", "trainer-algorithms", "trainer-overlap"] if HAS_TRAINER else []
        more = [word for part in parts for word in ("--only", part)]
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [GPU_CHECK, "--fake", "--built", "--build", BUILD, "--output", folder,
                 "--only", "streams-7-*", "--only", "sanitizer-memcheck",
                 "--only", "bench-cuda-4", *more],
                capture_output=True, text=True, timeout=200, check=False)
            report = json.loads((pathlib.Path(folder) / "report.json").read_text())
            text = (pathlib.Path(folder) / "report.txt").read_text()
            pictures = {path.name for path in pathlib.Path(folder).glob("laga-*")}
        statuses = {entry["name"]: entry["status"] for entry in report["parts"]}
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(statuses.pop("sanitizer-memcheck"), "skipped")
        self.assertEqual(set(statuses.values()), {"passed"}, done.stdout)
        self.assertEqual(len(statuses), 3 + len(parts))
        if HAS_TRAINER:
            self.assertRegex(text, "same +gpt +1 ranks, 50 losses")
            self.assertRegex(text, "same +adpsgd +4 ranks, 20 losses")
            self.assertRegex(text, "good +eager +4 ranks, [1-9][0-9]* updates without rank 3")
            self.assertNotIn("DIFFERS", text)
            self.assertRegex(text, "good: 46 reductions of 2 ranks are in flight")
            self.assertEqual(pictures, {"laga-trace.json", "laga-report.html"})
        self.assertRegex(text, "6 communicators, a stream each +4 ranks")
        self.assertIn("CUDA_DEVICE_MAX_CONNECTIONS=8, 7 streams wait: all else goes on", text)
        self.assertEqual(report["driver"], "without a device")
        self.assertNotIn(report["libraries"], ("", "unknown"))


if __name__ == "__main__":
    main()
