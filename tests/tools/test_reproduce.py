"""test_reproduce -- tools/reproduce from outside, and what its experiments share.

usage: test_reproduce.py BUILD-FOLDER
"""

import gzip
import json
import pathlib
import struct
import sys
import tempfile
import time
import unittest

from programs import Watch, check_usage, main, run, start

BUILD = pathlib.Path(sys.argv.pop(1))
TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"
REPRODUCE = TOOLS / "reproduce"
sys.path.insert(0, str(TOOLS))
sys.dont_write_bytecode = True

from reproduction import common  # noqa: E402


class Command(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def test_a_table_and_its_rows(self):
        got = run(REPRODUCE, "eager-skew", "--quick", "--build", BUILD, "--out", self.folder)
        self.assertEqual(got.returncode, 0, got.stderr.decode())
        out = self.folder / "eager-skew"
        self.assertEqual((out / "table.md").read_text(), got.stdout.decode()[:-1])
        rows = {row["what"]: row for row in json.loads((out / "rows.json").read_text())}
        for ranks in 4, 8:
            found = rows[f"{ranks} ranks, allreduce over majority"]
            self.assertAlmostEqual(found["model"], 3 * ranks / (ranks + 1))
            self.assertAlmostEqual(found["measured"], found["model"], delta=0.15 * found["model"])
            found = rows[f"{ranks} ranks, solo: fresh contributors"]
            self.assertAlmostEqual(found["measured"], 1.0, delta=0.1)
            found = rows[f"{ranks} ranks, majority: fresh contributors"]
            self.assertAlmostEqual(found["measured"], found["model"], delta=0.1 * found["model"])
        self.assertIn("in virtual time", got.stdout.decode())
        self.assertGreater(len((out / "commands.txt").read_text().splitlines()), 3)

    def test_when_it_ends_its_runs_end(self):
        if not common.FASHION.is_dir():
            self.skipTest("dataset-fashion-mnist is not installed")
        process = start(REPRODUCE, "adpsgd", "--quick", "--build", BUILD, "--out", self.folder)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        # Its first act is to write data; then there are runs, and files that they write.
        while not list(self.folder.glob("adpsgd/*/metrics.jsonl")):
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        watch = Watch(self.runs_of(process.pid))
        self.assertGreater(len(watch.fds), 0)
        process.terminate()
        self.assertEqual(watch.alive(), [])
        self.assertEqual(process.wait(), 143)

    @staticmethod
    def runs_of(parent):
        found = []
        for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = path.read_text().rsplit(") ", 1)[1].split()
            except OSError:
                continue  # It has just ended.
            if int(fields[1]) == parent:
                found.append(int(path.parent.name))
        return found

    def test_nonsense_is_refused(self):
        check_usage(self, REPRODUCE, "perpetuum", says="'perpetuum' is not one of")
        check_usage(self, REPRODUCE, says="names")
        check_usage(self, REPRODUCE, "eager-skew", "--seeds", 0, says="--seeds")
        check_usage(self, REPRODUCE, "eager-skew", "--real", "--simulate", says="exclude")
        check_usage(self, REPRODUCE, "eager-skew", "--build", self.folder, says="rubato-train")

    def test_each_experiment_has_its_file(self):
        got = run(REPRODUCE, "--help")
        self.assertEqual(got.returncode, 0)
        names = got.stdout.decode().split("Names: ")[1].strip().split(", ")
        files = [path for path in (TOOLS / "reproduction").glob("*.py")
                 if "\ndef run(train, out, seeds, quick):" in path.read_text()]
        self.assertEqual(len(names), len(files), (names, files))


class Shared(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, **options):
        return common.Train(BUILD / "trainer" / "rubato-train", self.folder, **options)

    def data(self, rows=96):
        common.write_npy(self.folder / "x.npy", "<f4", (rows, 4), common.floats(
            (row * 37 + k * 11) % 17 / 17 for row in range(rows) for k in range(4)))
        common.write_npy(self.folder / "y.npy", "|u1", (rows,), bytes(r % 3 for r in range(rows)))
        return f"npy:{self.folder}"

    def test_runs_by_key(self):
        train, data = self.train(), self.data()
        words = ["--ranks", 2, "--model", "logistic", "--data", data, "--batch", 4, "--steps", 6]
        found = train.many({
            seed: (f"run{seed}", [*words, "--seed", seed], ["--latency", "7us"])
            for seed in range(3)
        })
        self.assertEqual([found[seed]["seed"] for seed in range(3)], [0, 1, 2])
        self.assertTrue(found[0]["simulated"])
        self.assertEqual(found[1].metrics[-1]["step"], 6)
        self.assertEqual(len(train.commands), 3)
        self.assertIn("--latency 7us", train.commands[0])
        real = self.train(simulate=False)("real", *words, network=["--latency", "7us"])
        self.assertFalse(real["simulated"])

    def test_a_run_may_diverge(self):
        words = ["--ranks", 1, "--model", "mlp", "--hidden", 4, "--data", "synthetic:96x4",
                 "--batch", 4, "--steps", 100]
        calls = {rate: (f"rate{rate}", [*words, "--lr", rate]) for rate in (0.1, 1e3)}
        found = self.train().many(calls, may_diverge=True)
        self.assertIsNone(found[1e3])
        self.assertEqual(found[0.1].metrics[-1]["step"], 100)
        with self.assertRaisesRegex(common.Failed, "the training diverged"):
            self.train().many(calls)
        with self.assertRaisesRegex(common.Failed, "telepathy"):
            self.train().many({0: ("bad", ["--algorithm", "telepathy"])}, may_diverge=True)

    def test_failures_say_what_was_run(self):
        with self.assertRaisesRegex(common.Failed, "--algorithm.*telepathy(.|\n)*telepathy"):
            self.train()("bad", "--algorithm", "telepathy")
        with self.assertRaisesRegex(common.Failed, "not over after 0.5 s: sleep 1000"):
            common.execute(["sleep", 1000], 0.5)
        with self.assertRaisesRegex(common.Failed, "no-such-program"):
            self.train().tool("no-such-program")

    def test_figures(self):
        row = common.row("speed", 2.0, 1.5, [1.0, 2.0, 3.0], "x")
        self.assertEqual((row["measured"], row["spread"]), (2.0, 1.0))
        self.assertIn("| speed | 2 | 1.5 | 2 ± 1 | x |", common.markdown([row]))
        self.assertIn("| n |  |  | 1,234 | rounds |",
                      common.markdown([common.row("n", measured=1234, unit="rounds")]))

    def test_time_to_accuracy(self):
        class Run:
            metrics = [{"time": 1.0, "test_accuracy": 0.5}, {"time": 1.5},
                       {"time": 2.0, "test_accuracy": 0.7}]

        self.assertAlmostEqual(common.time_to(Run, 0.6), 1.5)
        self.assertEqual(common.time_to(Run, 0.4), 1.0)
        self.assertIsNone(common.time_to(Run, 0.8))
        self.assertEqual(common.curve(Run, "test_accuracy"), [(1.0, 0.5), (2.0, 0.7)])

    def test_validation_split(self):
        source, pixels = self.folder / "idx", 28 * 28
        source.mkdir()
        rows = 10
        images = bytes((row * 31 + k) % 256 for row in range(rows) for k in range(pixels))
        with gzip.open(source / "train-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">4I", 2051, rows, 28, 28) + images)
        with gzip.open(source / "train-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">2I", 2049, rows) + bytes(range(rows)))
        word = common.validation_split(self.folder / "split", 6, 3, source)
        self.assertEqual(word, f"npy:{self.folder / 'split'}")

        def body(name):
            data = (self.folder / "split" / name).read_bytes()
            return data[10 + int.from_bytes(data[8:10], "little"):]

        self.assertEqual(body("y.npy"), bytes(range(6)))
        self.assertEqual(body("y_test.npy"), bytes([7, 8, 9]))
        x = memoryview(body("x_test.npy")).cast("f")
        self.assertEqual(len(x), 3 * pixels)
        self.assertAlmostEqual(x[pixels], (images[8 * pixels] / 255 - 0.286) / 0.353, places=6)
        with self.assertRaises(common.Failed):
            common.validation_split(self.folder / "split", 8, 3, source)
        run_of_it = self.train()("split", "--ranks", 1, "--model", "logistic", "--data", word,
                                 "--batch", 2, "--steps", 2)
        self.assertEqual(run_of_it["samples"], 4)


main()
