#!/usr/bin/env python3
"""test_tune.py RUBATO-BENCH RUBATO-RUN RUBATO-SIM COARSE-CLOCK -- profiles: what --tune writes is
read by the library and by the simulator, and ranks that read different ones are told so, as are
those whose other settings differ."""

import os
import pathlib
import re
import sys
import tempfile
import unittest

from programs import main, run

BENCH, RUN, SIM, CLOCK = sys.argv[1:5]
del sys.argv[1:5]
FEW = ["-w", 0, "-t", 1]
NODE = ["node-latency", "node-send", "node-receive", "node-bandwidth", "memory-bandwidth"]
CACHE = ["cache", "cached-bandwidth", "reduced-bandwidth", "shared-bandwidth", "shared-latency"]
ATTACH = "attach-bandwidth"
STACK = "stack-bandwidth"  # Which a measurement may not show.
LINK = ["latency", "bandwidth", "send", "receive"]


class Profile(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return path

    def tuned(self, *words):
        """The lines of the profile, which are also what is printed, but for its first."""
        path = self.folder / "tuned"
        got = run(BENCH, "--tune", path, "--copy", "64K", *words)
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        text = path.read_text()
        self.assertEqual(got.stdout.decode(), text)
        self.assertEqual(os.listdir(self.folder), ["tuned"])
        return path, [line for line in text.splitlines() if line[0] != "#"]

    def rest(self, lines):
        """But for caches, which not every machine shows, and the kernel's copies, which not each
        allows: their names; their values are right."""
        caches = [line for line in lines if line.split()[0] in CACHE]
        self.assertIn([line.split()[0] for line in caches], [[], CACHE[:3], CACHE])
        if caches:
            self.assertGreaterEqual(int(caches[0].split()[1]), 3 * (128 << 10))
        for line in lines:
            if not line.startswith("cache "):
                value = re.match(r"\S+ ([0-9.]+)(us|GB/s)$", line)
                self.assertGreater(float(value[1]), 0, line)
        names = [line.split()[0] for line in lines if line not in caches]
        return [name for name in names if name != ATTACH]

    def explained(self, words, operation="allreduce", size=8, **env):
        got = run(BENCH, operation, "-n", 2, "-b", size, "-e", size, "--explain", *FEW, *words,
                  env=env)
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        return re.search(f"{operation}: .*", got.stdout.decode())[0]

    def both_read(self, path, words):
        said = self.explained(words, RUBATO_PROFILE=str(path))
        self.assertIn(f"; from profile {path}", said)
        self.assertNotIn("measured at creation", said)
        got = run(SIM, "allreduce", "-n", 4, "-e", "1K", "--profile", path)
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        return said

    def test_of_one_node(self):
        path, lines = self.tuned("-n", 3)
        self.assertEqual(self.rest(lines), NODE + ["core-bandwidth", "turn"])
        self.both_read(path, [])
        job = run(BENCH, "barrier", "-n", 2, *FEW, env={"RUBATO_LOG": "info"})
        measured = re.search(r"the kernel's copy ([0-9.]+) others", job.stderr.decode())
        if float(measured[1]) > 0: # And fast, and allowed; so it is for who tunes.
            self.assertIn(ATTACH, [line.split()[0] for line in lines])

    def test_of_several_nodes(self):
        if run(BENCH, "barrier", "-n", 2, "--transport", "tcp", *FEW).returncode != 0:
            self.skipTest("no UCX here")
        path, lines = self.tuned("-n", 3, "--transport", "tcp")
        self.assertEqual([name for name in self.rest(lines) if name != STACK],
                         LINK + ["core-bandwidth", "turn"])
        said = self.both_read(path, ["--transport", "tcp"])
        latency, send, receive = (float(lines[i].split()[1][:-2]) for i in (0, 2, 3))
        self.assertGreater(send + receive, latency)  # The kernel's work is processors'.
        self.assertIn(f"; 2 nodes, {latency:.1f} us and ", said)
        self.assertIn(", measured at creation", self.explained(["--transport", "tcp"]))

    def test_what_took_no_time_is_not_infinitely_fast(self):
        """As on a crowded node, where one message may take as long as four."""
        path = self.folder / "coarse"
        got = run(BENCH, "--tune", path, "--copy", "64K", "-n", 2, env={"LD_PRELOAD": CLOCK})
        if b"LD_PRELOAD" in got.stderr or b"anitizer" in got.stderr:
            self.skipTest("nothing can be loaded before this build")
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        links = re.findall(r"^(?:node-)?bandwidth ([0-9.]+)GB/s$", path.read_text(), re.M)
        self.assertLess(max(map(float, links), default=0), 1000)

    def test_help_is_not_a_file(self):
        for words in ("--tune", "--help"), ("--tune=x", "--help"), ("--help", "--tune"):
            got = run(BENCH, *words, cwd=self.folder)
            self.assertEqual((got.returncode, got.stderr), (0, b""), words)
            self.assertIn("usage: rubato-bench --tune FILE", got.stdout.decode(), words)
            self.assertEqual(os.listdir(self.folder), [])

    def test_predictions_follow(self):
        slow = self.write("slow", "node-latency 1ms\nnode-send 1us\nnode-receive 1us\n")
        predicted = [float(re.search(r"predicted ([0-9.]+) us", said)[1])
                     for said in (self.explained([]),
                                  self.explained([], RUBATO_PROFILE=str(slow)))]
        self.assertLess(predicted[0], 1000)
        self.assertGreaterEqual(predicted[1], 1000)

    def test_copies_of_the_kernel_count_where_they_are_fast(self):
        node = "node-latency 0.2us\nnode-send 0.1us\nnode-receive 0.1us\n" \
            "core-bandwidth 80GB/s\n"
        said = []
        for more in ("", "attach-bandwidth 60GB/s\n", "attach-bandwidth 20GB/s\n"):
            path = str(self.write("p", node + more))
            line = self.explained([], "broadcast", "4M", RUBATO_PROFILE=path)
            said.append(float(re.search(r"flat ([0-9.]+) us", line)[1]))
        self.assertEqual(said[0], said[2])
        self.assertLess(said[1], said[0])

    def test_ranks_must_read_the_same(self):
        self.write("p0", "turn 1us # the same\n")
        self.write("p1", "turn 1.0us\n")
        self.write("p2", "turn 2us\n")
        job = [RUN, "-n", 3, "sh", "-c"]
        barrier = f"exec '{BENCH}' barrier -w 0 -t 1"
        same = run(*job, f"RUBATO_PROFILE={self.folder}/p$((RUBATO_RANK % 2)) {barrier}")
        self.assertEqual(same.returncode, 0, same.stderr)
        got = run(*job, f"RUBATO_PROFILE={self.folder}/p$RUBATO_RANK {barrier}")
        self.assertNotEqual(got.returncode, 0)
        self.assertRegex(got.stderr.decode(),
                         r"ranks (2 and [01]|[01] and 2) differ in what RUBATO_PROFILE says")
        some = f"test $RUBATO_RANK = 1 || export RUBATO_PROFILE={self.folder}/p2"
        got = run(*job, f"{some}; {barrier}")
        self.assertRegex(got.stderr.decode(),
                         r"ranks (1 and [02]|[02] and 1) differ in what RUBATO_PROFILE says")

    def test_settings_that_differ_are_named(self):
        def said(variable, mine, others):
            """By rank 1 of three and by the others; each tells its own."""
            choice = f"test $RUBATO_RANK = 1 && v={mine} || v={others}"
            got = run(RUN, "--keep-going", "-n", 3, "sh", "-c",
                      f"{choice}; {variable}=$v exec '{BENCH}' barrier -w 0 -t 1")
            self.assertNotEqual(got.returncode, 0)
            text = got.stderr.decode()
            return text, r"ranks %s and %s differ in " + variable + ": %s"

        for variable, mine, others in (("CHUNK", 4096, 8192), ("MEASURE", 0, 1)):
            text, form = said(f"RUBATO_{variable}", mine, others)
            self.assertRegex(text, form % (1, "[02]", f"{mine} and {others}"))
            self.assertRegex(text, form % ("[02]", 1, f"{others} and {mine}"))
        pairs = [("ALGORITHM", "barrier=flat", "allreduce=ring"), ("TRANSPORT", "auto", "shm")]
        if b"without UCX" not in run(BENCH, "barrier", "-n", 2, "--transport", "ucx", *FEW).stderr:
            # Over UCX devices are exchanged first, of which the others know nothing.
            pairs += [("TRANSPORT", mine, others) for mine, others in (
                ("tcp", "shm"), ("shm", "ucx"), ("tcp", "ucx"), ("shm,ucx", "ucx"))]
        for variable, mine, others in pairs:
            text, form = said(f"RUBATO_{variable}", mine, others)
            self.assertRegex(text, form % (1, "[02]", f"{mine} on rank 1"))
            self.assertRegex(text, form % ("[02]", 1, f"{others} on rank [02]"))

    def test_what_is_wrong_is_said(self):
        bad = self.write("bad", "turn 1us\nturns 2us\n")
        for path, why in (bad, "line 2: nothing is named turns"), ("/nonexistent", "No such file"):
            got = run(BENCH, "barrier", "-n", 2, *FEW, env={"RUBATO_PROFILE": str(path)})
            self.assertEqual(got.returncode, 1)
            self.assertIn(f"RUBATO_PROFILE={path}", got.stderr.decode())
            self.assertIn(why, got.stderr.decode())

    def test_what_cannot_be_written_is_said(self):
        got = run(BENCH, "--tune", self.folder / "none" / "profile", "-n", 2, "--copy", "64K")
        self.assertEqual(got.returncode, 1)
        self.assertIn("could not be written", got.stderr.decode())
        kept = self.write("kept", "turn 1us\n")
        self.assertEqual(run(BENCH, "--tune", kept, "--copy", "0", "-n", 2).returncode, 2)
        self.assertEqual(kept.read_text(), "turn 1us\n")


if __name__ == "__main__":
    main()
