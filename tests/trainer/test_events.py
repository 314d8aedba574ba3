"""test_events.py RUBATO-TRAIN -- the file for TensorBoard says what metrics.jsonl says, also of a
run that was resumed. The parser here is written from the format's description; where the package
tensorboard is, it reads the file, too."""

import json
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from programs import main  # noqa: E402

TRAIN = sys.argv.pop(1)
NAME = "events.out.tfevents.rubato"
RUN = ["--simulate", "--ranks", "2", "--model", "hyperplane", "--data", "synthetic:160x8",
       "--batch", "4", "--report-every", "5", "--compute-time", "5ms", "--no-report", "--quiet"]


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        event, (of_event,) = data[12:12 + size], struct.unpack("<I", data[12 + size:16 + size])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        assert len(event) == size and of_event == masked(event)
        yield event
        data = data[16 + size:]


def varint(data, at):
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def fields(data):
    """Number and value of each field: a varint, eight bytes, a text or a message, four bytes."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else varint(data, at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value


def read(path):
    """Of each event: step, time, and its values by tag."""
    first, *others = records(path.read_bytes())
    assert dict(fields(first)) == {1: struct.pack("<d", 0), 3: b"brain.Event:2"}
    events = []
    for event in others:
        event = dict(fields(event))
        values = [dict(fields(value)) for number, value in fields(event[5]) if number == 1]
        events.append((event[2], struct.unpack("<d", event[1])[0],
                       {value[1].decode(): struct.unpack("<f", value[2])[0] for value in values}))
    return events


def single(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


class Events(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def train(self, *words):
        done = subprocess.run([TRAIN, *RUN, *map(str, words)], cwd=self.folder,
                              capture_output=True, text=True, timeout=240)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check(self, folder, least):
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        self.assertGreaterEqual(len(lines), least)
        want = [(line["step"], line["time"],
                 {key: single(value) for key, value in line.items()
                  if value is not None and key not in ("step", "time")}) for line in lines]
        self.assertEqual(read(folder / NAME), want)
        return lines

    def test_the_checksum(self):
        self.assertEqual(crc32c(b"123456789"), 0xe3069283)

    def test_what_metrics_say(self):
        self.train("--steps", 40, "--out", "a", "--eval-every", 1)
        lines = self.check(self.folder / "a", 8)
        self.assertTrue(any("test_loss" in line for line in lines))
        self.assertGreater(lines[-1]["time"], 0.2)  # Virtual: 40 times 5 ms.
        self.tensorboard(self.folder / "a", lines)

    def test_a_resumed_run(self):
        words = ["--checkpoint-every", 20]
        self.train(*words, "--steps", 40, "--out", "a", "--checkpoint", "ca")
        self.train(*words, "--steps", 20, "--out", "b", "--checkpoint", "cb")
        with open(self.folder / "b" / NAME, "ab") as file:
            file.write(b"half a record")
        self.train(*words, "--steps", 40, "--out", "b", "--checkpoint", "cb", "--resume")
        self.check(self.folder / "b", 8)
        self.assertEqual((self.folder / "a" / NAME).read_bytes(),
                         (self.folder / "b" / NAME).read_bytes())

    def tensorboard(self, folder, lines):
        try:
            from tensorboard.backend.event_processing import event_accumulator
        except ImportError:
            return
        found = event_accumulator.EventAccumulator(str(folder)).Reload()
        self.assertIn("loss", found.Tags()["scalars"])
        self.assertEqual([(e.step, e.value) for e in found.Scalars("loss")],
                         [(line["step"], single(line["loss"])) for line in lines])


if __name__ == "__main__":
    main()
