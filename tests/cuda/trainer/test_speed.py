#!/usr/bin/env python3
"""test_speed.py RUBATO-TRAIN LIBRARY -- speed.py: PyTorch's models are ours, and too slow is told;
what agree.py makes of a trace, breakdown.py of a profile.
RUBATO_TORCH names a Python that has torch (docs/pytorch.md); without it these are not compared."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "tools")]

import agree  # noqa: E402
import breakdown  # noqa: E402
import speed  # noqa: E402
from programs import main  # noqa: E402

RUBATO_TRAIN, LIBRARY = sys.argv.pop(1), sys.argv.pop(1)
TORCH = os.environ.get("RUBATO_TORCH")
NO_TORCH = "RUBATO_TORCH does not name a Python that has torch"
FORMS = sum(len(row.forms) for row in speed.SMALL_ROWS)


def run(*words, **env):
    return subprocess.run([sys.executable, "-B", HERE / "speed.py", RUBATO_TRAIN, *words],
                          capture_output=True, text=True, timeout=300, check=False,
                          env={**os.environ, **env})


class Fixed:
    """In place of Measured: rates that are known."""

    def __init__(self, row, ours, theirs, loss=2.0):
        self.row, self.precision, self.parameters = row, "float32", 7
        self.rates, self.of_forms, self.loss, self.asked = iter(ours), theirs, loss, []
        self.peer = type("Peer", (), {"why": None})

    def ours(self, *_):
        return next(self.rates), 2.0

    def theirs(self, form, *_):
        self.asked.append(form)
        return self.of_forms[form], [self.loss] * 40

    def quarter(self, *_):
        return 1


class Verdicts(unittest.TestCase):
    gpt = speed.ROWS[1]

    def test_a_ratio_below_the_aim_fails(self):
        self.assertEqual([speed.verdict(ratio, 0.9)[1] for ratio in (0.89, 0.9, 1.2)],
                         [True, False, False])
        self.assertIn("MISSED", speed.verdict(0.89, 0.9)[0])

    def test_the_fastest_form_and_the_median_count(self):
        # The first rate is of the short run.
        for rates, bad, ratio in (((50, 91, 99, 10), False, "0.910"),
                                  ((50, 99, 10, 89), True, "0.890")):
            measured = Fixed(self.gpt, rates, {"plain": 20.0, "tuned": 100.0})
            lines, failed = speed.row_measured(measured, 1)
            self.assertEqual((failed, measured.asked), (bad, ["plain"] + 4 * ["tuned"]))
            self.assertIn(f"PyTorch tuned 100 (100 to 100) tokens/s: {ratio} of it", lines[0])

    def test_another_loss_fails(self):
        measured = Fixed(self.gpt, (99,) * 4, {"plain": 9.0, "tuned": 10.0}, loss=2.1)
        lines, failed = speed.row_measured(measured, 1)
        self.assertTrue(failed)
        self.assertIn("TOO FAR", lines[1])

    def test_aims_are_those_that_were_set(self):
        self.assertEqual({row.name: row.aim for row in speed.ROWS}, {"resnet20": 1.0, "gpt": 0.9})


def span(name, begin, end, rank=0):
    return {"ph": "X", "pid": rank, "name": name, "ts": begin, "dur": end - begin}


class InATrace(unittest.TestCase):
    """Of agree.py: what a trace says of reductions in flight."""

    computing = [span("compute", begin, begin + 10) for begin in (0, 20, 40)]

    def test_behind_gradients(self):
        events = self.computing + [span("communication", 30, 34), span("reduction", 14, 34),
                                   span("reduction", 34, 50), span("reduction", 52, 99)]
        self.assertEqual(agree.hidden_in(events, 1), (32 / 36, 1.0, 2))

    def test_waited_for_at_once(self):
        events = self.computing + [span("communication", 11, 20), span("reduction", 11, 20),
                                   span("communication", 31, 40), span("reduction", 32, 40)]
        self.assertEqual(agree.hidden_in(events, 1), (0.0, 0.0, 2))

    def test_each_rank_by_itself(self):
        events = self.computing + [span("compute", 0, 100, 1), span("reduction", 10, 20),
                                   span("reduction", 10, 20, 1), span("communication", 10, 20)]
        self.assertEqual(agree.hidden_in(events, 2), (0.5, 0.5, 2))


class InAProfile(unittest.TestCase):
    def test_what_takes_longest_comes_first(self):
        events = [{"ph": "X", "cat": kind, "name": name, "dur": us}
                  for kind, name, us in (("kernel", "a", 3.0), ("kernel", "b", 8.0),
                                         ("gpu_memcpy", "c", 1.0), ("kernel", "a", 3.0),
                                         ("cuda_runtime", "d", 99.0))] + [{"ph": "M"}]
        names = breakdown.by_name(events, 2)
        self.assertEqual(names, [("b", 0.5, 4.0), ("a", 1.0, 3.0), ("c", 0.5, 0.5)])
        lines = breakdown.table("gpt", names, 10.0)
        self.assertIn("10 us a step, busy 8 us with 2 of:", lines[0])


class OnAProcessor(unittest.TestCase):
    def test_without_pytorch_ours_is_measured_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "torch.py").write_text("raise ImportError\n")
            hidden = {"PYTHONPATH": folder, "RUBATO_TORCH": sys.executable}
            done = run("speed", "--device", "cpu", "--only", "gpt", "--seconds", "0.1", **hidden)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(done.stdout, r"(?s)\APyTorch: skipped: .*no PyTorch; ours alone\n"
                                          r"gpt .* tokens/s, \d+ parameters\n\Z")
            self.assertEqual(run("peer", **hidden).returncode, 77)

    def test_a_peer_that_says_nothing_is_no_missing_one(self):
        done = run("speed", "--device", "cpu", RUBATO_TORCH="/bin/true")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("peer_torch.py said nothing", done.stdout)

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_losses_are_ours(self):
        done = run("peer")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("good"), FORMS + 2 * len(speed.SMALL_ROWS), done.stdout)

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_both_are_measured(self):
        done = run("speed", "--device", "cpu", "--seconds", "0.1")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        for row in speed.SMALL_ROWS:
            self.assertRegex(done.stdout, rf"{row.name} .*, PyTorch \S+ .* of it; no aim here\n")

    @unittest.skipUnless(TORCH, NO_TORCH)
    def test_a_profile_of_both(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run([TORCH, "-B", HERE / "breakdown.py", LIBRARY, "--device", "cpu",
                                   "--only", "gpt", "--keep", folder], capture_output=True,
                                  text=True, timeout=300, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            made = json.loads(pathlib.Path(folder, "breakdown.json").read_text())
        self.assertRegex(done.stdout, r"(?s)gpt float32, rubato-train: [1-9].*"
                                      r"gpt float32, PyTorch tuned: [1-9].*aten::")
        self.assertIn("aten::addmm", {name for name, *_ in made["gpt float32"]["PyTorch"]})


if __name__ == "__main__":
    if not TORCH:
        print(f"not compared with PyTorch: {NO_TORCH}")
    main()
