"""overlap -- gradient buckets across slow links: network namespaces with a token bucket each.

usage: overlap.py RUBATO-TRAIN                     the test: 2 hosts; right results, and buckets
                                                   that are over before anybody waits for them
       overlap.py RUBATO-TRAIN --measure [RATE]    the table of docs/performance.md: 2 to 4 hosts
                                                   with links of RATE (200mbit)

Hosts are those of tools/testbed; UCX's TCP between them. Communication is what the ranks wait for
when the computation is over at once.
"""

import array
import json
import os
import pathlib
import subprocess
import sys
import tempfile

TRAIN = sys.argv[1]
MEASURE = sys.argv[2:3] == ["--measure"]
RATE = sys.argv[3] if len(sys.argv) > 3 else "200mbit"
TESTBED = str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "testbed")
FEATURES, ROWS, HIDDEN = 784, 64, 1318  # 1,047,820 parameters: 16 whole buckets.
BUCKET = "256K"
STEPS, WARM = 12, 4


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def npy_write(path, descr, shape, values):
    head = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    head = head.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head.encode())
        values.tofile(file)


def data_make(folder):
    os.mkdir(folder)
    pixels = ((row * 7919 + k * 104729) % 1009 / 1009
              for row in range(ROWS) for k in range(FEATURES))
    npy_write(f"{folder}/x.npy", "<f4", (ROWS, FEATURES), array.array("f", pixels))
    npy_write(f"{folder}/y.npy", "<i4", (ROWS,), array.array("i", (r % 10 for r in range(ROWS))))


class Hosts:
    """Hosts of tools/testbed, made anew for each run."""

    def __init__(self, count, rate):
        self.count, self.rate = count, rate

    def train(self, folder, words, settings=()):
        """One rank a host. Returns the lines of metrics and the summary."""
        out = f"{folder}/out"
        line = [TESTBED, "--hosts", str(self.count), "--rate", self.rate, "--timeout", "300", "--",
                TRAIN, "--data", f"npy:{folder}/data", "--model", "mlp", "--hidden", str(HIDDEN),
                "--batch", "1", "--steps", str(STEPS), "--report-every", str(WARM),
                "--out", out, "--no-report", "--quiet", *words]
        got = subprocess.run(line, env=dict(os.environ, RUBATO_TIMEOUT="60s", **dict(settings)),
                             capture_output=True, text=True, check=False)
        if got.returncode == 77:
            skip(got.stderr.strip())
        if got.returncode != 0:
            sys.exit(f"{' '.join(line)}: {got.returncode}: {got.stderr}")
        with open(f"{out}/metrics.jsonl") as file:
            lines = [json.loads(text) for text in file]
        with open(f"{out}/summary.json") as file:
            return lines, json.load(file)


def per_step(lines, key):
    return (lines[-1][key] - lines[0][key]) / (lines[-1]["step"] - lines[0]["step"])


def time_of(seconds):
    return ["--compute-time", f"{seconds * 1e6:.3f}us"]


def emulated(seconds):
    """A backward pass of that time alone: during a forward pass there is nothing to hide."""
    return [*time_of(seconds), "--forward", "0"]


def measure_hosts(hosts, folder):
    lines, summary = hosts.train(folder, ["--bucket", BUCKET, *emulated(1e-6)])
    communication = per_step(lines, "communication_time")
    bucket = communication / summary["buckets"]
    bits = 32 * summary["parameters"] * 2 * (hosts.count - 1) / hosts.count
    wire = bits / (float(RATE.removesuffix("mbit")) * 1e6)  # A ring, without heads of packets.
    for ratio in 0.5, 1.0, 2.0:
        compute = ratio * communication
        lines, summary = hosts.train(folder, ["--bucket", BUCKET, *emulated(compute)])
        step = per_step(lines, "time")
        whole = per_step(hosts.train(folder, ["--bucket", "0", *time_of(compute)])[0], "time")
        bound = max(compute, communication) + bucket
        print(f"| {hosts.count} | {wire * 1e3:.0f} | {communication * 1e3:.0f} | "
              f"{compute * 1e3:.0f} | {whole * 1e3:.0f} | {step * 1e3:.0f} | {bound * 1e3:.0f} | "
              f"{step / bound:.3f} | {100 * summary['hidden_fraction']:.0f} % |", flush=True)


def measure(folder):
    print(f"rate {RATE}, bucket {BUCKET}, {STEPS - WARM} steps\n")
    print("| ranks | link | communication | computation | in one piece | in buckets | bound | "
          "step over bound | hidden |")
    print("|---|---|---|---|---|---|---|---|---|")
    for count in 2, 3, 4:
        measure_hosts(Hosts(count, RATE), folder)


def check(folder):
    """What was asked for happened; no word about how long it took."""
    hosts = Hosts(2, "200mbit")
    words = ["--bucket", BUCKET, *emulated(0.4), "--steps", "6", "--report-every", "1"]
    hidden = hosts.train(folder, [*words, "--save", f"{folder}/w.npy"])[1]
    alone = hosts.train(folder, words, {"RUBATO_BACKGROUND": "0"}.items())[1]
    hosts.train(folder, ["--bucket", "0", "--steps", "6", "--save", f"{folder}/one.npy"])
    with open(f"{folder}/w.npy", "rb") as file, open(f"{folder}/one.npy", "rb") as other:
        assert file.read() == other.read(), "buckets changed the parameters"
    assert hidden["buckets"] == 16, hidden["buckets"]
    assert hidden["hidden_fraction"] > 0, hidden["hidden_fraction"]
    # Without anybody to progress them, big messages do not move while a rank computes.
    assert alone["hidden_fraction"] < 0.1, alone["hidden_fraction"]
    print(f"{hidden['hidden_fraction']:.2f} of the buckets were over in time, "
          f"{alone['hidden_fraction']:.2f} without background progress")


def main():
    with tempfile.TemporaryDirectory() as folder:
        data_make(f"{folder}/data")
        (measure if MEASURE else check)(folder)


main()
