"""overlap -- gradient buckets across slow links: network namespaces with a token bucket each.

usage: overlap.py RUBATO-TRAIN                     the test: 2 hosts; right results, and buckets
                                                   that are over before anybody waits for them
       overlap.py RUBATO-TRAIN --measure [RATE]    the table of docs/performance.md: 2 to 4 hosts
                                                   with links of RATE (200mbit)

Hosts are namespaces that this script makes and removes, joined by a bridge in another one; UCX's
TCP between them. Communication is what the ranks wait for when the computation is over at once.
"""

import array
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TRAIN = sys.argv[1]
MEASURE = sys.argv[2:3] == ["--measure"]
RATE = sys.argv[3] if len(sys.argv) > 3 else "200mbit"
BURST = "64kb"
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
    """Namespaces, each with one address and a link whose sending side is as slow as asked."""

    def __init__(self, count, rate):
        self.count = count
        self.tag = f"rubato-{os.getpid()}"
        try:
            self.make(rate)
        except subprocess.CalledProcessError as error:
            self.remove()
            skip(f"{' '.join(error.cmd)}: {error.stderr.strip()}")

    def name(self, host):
        return f"{self.tag}-{host}"

    def make(self, rate):
        def ip(*words):
            subprocess.run(["ip", *words], check=True, capture_output=True, text=True)

        ip("netns", "add", self.name("bridge"))
        ip("-n", self.name("bridge"), "link", "add", "bridge", "type", "bridge")
        ip("-n", self.name("bridge"), "link", "set", "bridge", "up")
        for host in range(self.count):
            name, port = self.name(host), f"port{host}"
            ip("netns", "add", name)
            ip("netns", "exec", name, "true")
            ip("link", "add", "name", "wire", "netns", name, "type", "veth", "peer", "name", port,
               "netns", self.name("bridge"))
            ip("-n", self.name("bridge"), "link", "set", port, "master", "bridge", "up")
            ip("-n", name, "addr", "add", f"10.78.0.{host + 1}/24", "dev", "wire")
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "link", "set", "wire", "up")
            subprocess.run(["tc", "-n", name, "qdisc", "add", "dev", "wire", "root", "tbf",
                            "rate", rate, "burst", BURST, "latency", "100ms"],
                           check=True, capture_output=True, text=True)
        for host in range(self.count):
            self.wait_for(self.name(host))

    @staticmethod
    def wait_for(name):
        """Until the link runs, UCX does not see it."""
        for _ in range(200):
            shown = subprocess.run(["ip", "-n", name, "link", "show", "wire"], check=True,
                                   capture_output=True, text=True).stdout
            if "state UP" in shown:
                return
            time.sleep(0.02)
        skip(f"the link of {name} does not come up")

    def remove(self):
        for host in [*range(self.count), "bridge"]:
            subprocess.run(["ip", "netns", "del", self.name(host)], capture_output=True,
                           check=False)

    def train(self, folder, words, settings=()):
        """One rank a host. Returns the lines of metrics and the summary."""
        out = f"{folder}/out"
        env = dict(os.environ, RUBATO_SIZE=str(self.count), RUBATO_ROOT="10.78.0.1:29778",
                   RUBATO_SECRET_FILE=f"{folder}/secret", RUBATO_TRANSPORT="tcp",
                   RUBATO_TIMEOUT="60s", OMP_NUM_THREADS="1", UCX_TLS="tcp,self",
                   UCX_NET_DEVICES="wire", **dict(settings))
        line = [TRAIN, "--data", f"npy:{folder}/data", "--model", "mlp", "--hidden", str(HIDDEN),
                "--batch", "1", "--steps", str(STEPS), "--report-every", str(WARM),
                "--out", out, "--quiet", *words]
        ranks = [subprocess.Popen(["ip", "netns", "exec", self.name(rank), *line],
                                  env=dict(env, RUBATO_RANK=str(rank)), text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                 for rank in range(self.count)]
        try:
            for rank, process in enumerate(ranks):
                _, errors = process.communicate(timeout=300)
                if process.returncode != 0:
                    sys.exit(f"rank {rank} of {' '.join(line)}: {process.returncode}: {errors}")
        finally:
            for process in ranks:
                process.kill()  # Those that have not ended.
        with open(f"{out}/metrics.jsonl") as file:
            lines = [json.loads(text) for text in file]
        with open(f"{out}/summary.json") as file:
            return lines, json.load(file)


def per_step(lines, key):
    return (lines[-1][key] - lines[0][key]) / (lines[-1]["step"] - lines[0]["step"])


def emulated(seconds):
    """A backward pass of that time alone: during a forward pass there is nothing to hide."""
    return ["--compute-time", f"{seconds * 1e6:.3f}us", "--forward", "0"]


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
        whole = per_step(hosts.train(folder, ["--bucket", "0", *emulated(compute)])[0], "time")
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
        hosts = Hosts(count, RATE)
        try:
            measure_hosts(hosts, folder)
        finally:
            hosts.remove()


def check(folder):
    """What was asked for happened; no word about how long it took."""
    hosts = Hosts(2, "200mbit")
    words = ["--bucket", BUCKET, *emulated(0.4), "--steps", "6", "--report-every", "1"]
    try:
        hidden = hosts.train(folder, [*words, "--save", f"{folder}/w.npy"])[1]
        alone = hosts.train(folder, words, {"RUBATO_BACKGROUND": "0"}.items())[1]
        hosts.train(folder, ["--bucket", "0", "--steps", "6", "--save", f"{folder}/one.npy"])
    finally:
        hosts.remove()
    with open(f"{folder}/w.npy", "rb") as file, open(f"{folder}/one.npy", "rb") as other:
        assert file.read() == other.read(), "buckets changed the parameters"
    assert hidden["buckets"] == 16, hidden["buckets"]
    assert hidden["hidden_fraction"] > 0, hidden["hidden_fraction"]
    # Without anybody to progress them, big messages do not move while a rank computes.
    assert alone["hidden_fraction"] < 0.1, alone["hidden_fraction"]
    print(f"{hidden['hidden_fraction']:.2f} of the buckets were over in time, "
          f"{alone['hidden_fraction']:.2f} without background progress")


def end(number, _):
    """On the way out the hosts are removed, undisturbed."""
    signal.signal(number, signal.SIG_IGN)
    sys.exit("ended by SIGTERM")


def main():
    signal.signal(signal.SIGTERM, end)
    if os.geteuid() != 0:
        skip("network namespaces need root")
    for tool in "ip", "tc":
        if shutil.which(tool) is None:
            skip(f"{tool} (iproute2) is not installed")
    with tempfile.TemporaryDirectory() as folder:
        data_make(f"{folder}/data")
        with open(os.open(f"{folder}/secret", os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
            file.write(os.urandom(24).hex())
        (measure if MEASURE else check)(folder)


main()
