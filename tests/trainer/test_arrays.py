"""test_arrays.py RUBATO-TRAIN -- what numpy writes is what rubato-train reads: of the same numbers
in another type or order the same parameters come, bit by bit; what cannot be read is refused."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from programs import main  # noqa: E402

try:
    import numpy as np
except ImportError:
    print("skipped: numpy (python3-numpy) is not installed")
    sys.exit(77)

TRAIN = sys.argv.pop(1)
ROWS, HEIGHT, WIDTH, CLASSES = 24, 6, 5, 3


class Arrays(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        random = np.random.default_rng(1)
        self.bytes = random.integers(0, 256, (ROWS, HEIGHT, WIDTH), "u1")
        self.x = (self.bytes / 128 - 1).astype("f4")  # No more bits than float16 has.
        self.labels = random.integers(0, CLASSES, ROWS)
        self.targets = self.x.mean((1, 2)).astype("f2").astype("f4").reshape(ROWS, 1)

    def run_on(self, x, y, *words):
        np.save(self.folder / "x.npy", x, allow_pickle=True)
        np.save(self.folder / "y.npy", y)
        out = self.folder / "out.npy"
        return subprocess.run(
            [TRAIN, "--quiet", "-n", "1", "--data", f"npy:{self.folder}", "--model", "logistic",
             "--batch", "8", "--steps", "6", "--lr", "0.5", "--save", out, *words],
            capture_output=True, text=True, timeout=240)

    def trained(self, x, y, *words):
        done = self.run_on(x, y, *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return np.load(self.folder / "out.npy")

    def test_types_and_orders(self):
        want = self.trained(self.x, self.labels)
        self.assertGreater(np.abs(want).max(), 0)
        for x in (self.x.astype("f8"), self.x.astype("f2"), np.asfortranarray(self.x),
                  np.asfortranarray(self.x.astype("f8")), np.asfortranarray(self.x.astype("f2"))):
            self.assertEqual(self.trained(x, self.labels).tobytes(), want.tobytes(), x.dtype)
        for kind in "u1", "i1", "i2", "u4":
            got = self.trained(self.x, self.labels.astype(kind))
            self.assertEqual(got.tobytes(), want.tobytes(), kind)
        other = self.trained(self.x.swapaxes(1, 2).copy().reshape(self.x.shape), self.labels)
        self.assertNotEqual(other.tobytes(), want.tobytes())

    def test_bytes_are_pixels(self):
        pixels = self.bytes.astype("f4") / np.float32(255)
        want = self.trained(pixels, self.labels)
        for x in self.bytes, np.asfortranarray(self.bytes):
            self.assertEqual(self.trained(x, self.labels).tobytes(), want.tobytes())

    def test_targets_and_first_parameters(self):
        words = ["--model", "hyperplane"]
        want = self.trained(self.x, self.targets, *words)
        for kind in "f2", "f8":
            y = np.asfortranarray(self.targets.astype(kind))
            self.assertEqual(self.trained(self.x, y, *words).tobytes(), want.tobytes(), kind)
        first = want.astype("f2")
        finals = []
        for kind in "f2", "f4", "f8":
            np.save(self.folder / "first.npy", first.astype(kind))
            finals.append(self.trained(self.x, self.targets, *words, "--init",
                                       self.folder / "first.npy").tobytes())
        self.assertEqual(len({*finals, want.tobytes()}), 2)

    def test_what_cannot_be(self):
        records = np.zeros(ROWS, [("a", "f4"), ("b", "f4")])
        for x, says in [
            (self.x.astype(">f4"), "dtype '>f4' is big-endian"),
            (np.array([object()] * ROWS), "Python objects"),
            (records, "records"),
            (self.x > 0, "dtype '|b1' is no integer"),
            (self.x.astype("c8"), "dtype '<c8' is no integer"),
            (self.bytes.astype("i2"), "x must be float16, float32, float64 or uint8"),
            (self.x.astype("f8") * 1e39, "too large for float32"),
            (np.where(self.x > 0.9, np.inf, self.x).astype("f2"), "an infinity"),
        ]:
            done = self.run_on(x, self.labels)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(says, done.stderr)
            self.assertIn("x.npy", done.stderr)


if __name__ == "__main__":
    main()
