"""test_testbed -- tools/testbed from outside: three hosts, a trainer across them, nothing left.

usage: test_testbed.py RUBATO-TRAIN
"""

import json
import os
import pathlib
import re
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest

from programs import Watch, check_usage, main, python, run, start

TRAIN = sys.argv.pop(1)
TESTBED = pathlib.Path(__file__).resolve().parents[2] / "tools" / "testbed"
FEATURES, ROWS = 16, 96

probe = run(TESTBED, "--hosts", 2, "--", "true")
if probe.returncode == 77:
    print(f"skipped: {probe.stderr.decode().strip()}")
    sys.exit(77)


def namespaces():
    """Namespaces of the network that any process is in. Those of other programs come and go, and
    may have the numbers of those that were."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            found.setdefault(os.readlink(process / "ns/net"), set()).add(process.name)
        except OSError:
            continue  # It has just ended.
    return found


def names(pid, word):
    """Whether a process has the word in its command line."""
    try:
        return word in pathlib.Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False  # It has just ended.


class Testbed(unittest.TestCase):
    def test_each_rank_has_its_host(self):
        got = run(TESTBED, "--hosts", 3, "--per-host", 2, "--", "sh", "-c",
                  "echo $RUBATO_RANK of $RUBATO_SIZE; ip -4 -o addr show wire; printf end")
        self.assertEqual(got.returncode, 0, got.stderr)
        lines = got.stdout.decode().splitlines()
        for rank in range(6):
            self.assertIn(f"[{rank}] {rank} of 6", lines)
            self.assertIn(f"[{rank}] end", lines)
            own = [line for line in lines if line.startswith(f"[{rank}]") and "inet" in line]
            self.assertIn(f"10.78.0.{rank // 2 + 1}/24", own[0])

    def test_the_link_has_the_rate(self):
        for rate, said in ("250Mbit", "250Mbit"), ("100Gbit", "100Gbit"):
            got = run(TESTBED, "--hosts", 1, "--rate", rate, "--", "tc", "qdisc", "show", "dev",
                      "wire")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertTrue(re.search(rf"tbf .* rate {said} ", got.stdout.decode()), got.stdout)

    def test_the_link_has_the_burst(self):
        for words, said in ((), "125000b"), (("--burst", "16000"), "16000b"):
            got = run(TESTBED, "--hosts", 1, *words, "--", "tc", "-raw", "qdisc", "show", "dev",
                      "wire")
            self.assertEqual(got.returncode, 0, got.stderr)
            self.assertIn(f" burst {said}", got.stdout.decode())

    def test_a_delayed_link_takes_its_time_and_keeps_the_bytes(self):
        got = run(TESTBED, "--hosts", 2, "--rate", "100Mbit", "--delay", "20", "--", *python(
            "import os, socket, time\n"
            "sent = bytes(range(251)) * 2000\n"
            "if os.environ['RUBATO_RANK'] == '1':\n"
            "    with socket.create_server(('10.78.0.2', 5000)) as door:\n"
            "        caller = door.accept()[0]\n"
            "        got = b''\n"
            "        while len(got) < len(sent):\n"
            "            got += caller.recv(65536)\n"
            "        assert got == sent\n"
            "        caller.sendall(b'x')\n"
            "else:\n"
            "    end = time.monotonic() + 20\n"
            "    while True:\n"
            "        begin = time.monotonic()\n"
            "        try:\n"
            "            caller = socket.create_connection(('10.78.0.2', 5000))\n"
            "            break\n"
            "        except OSError:\n"
            "            assert begin < end\n"
            "    print('round trip', time.monotonic() - begin)\n"
            "    caller.sendall(sent)\n"
            "    assert caller.recv(1) == b'x'\n"))
        self.assertEqual(got.returncode, 0, got.stderr)
        found = re.search(r"round trip ([\d.]+)", got.stdout.decode())
        self.assertGreaterEqual(float(found[1]), 0.04)

    def test_a_host_receives_no_faster_than_its_link(self):
        """Two others send at once, each as fast as its own link is."""
        each = 1_500_000
        for delay in "0", "5":
            got = run(TESTBED, "--hosts", 3, "--rate", "100Mbit", "--delay", delay, "--", *python(
                "import os, select, socket, time\n"
                f"each = {each}\n"
                "if os.environ['RUBATO_RANK'] == '0':\n"
                "    with socket.create_server(('10.78.0.1', 5000)) as door:\n"
                "        callers = [door.accept()[0] for _ in range(2)]\n"
                "        for caller in callers:\n"
                "            caller.sendall(b'x')\n"
                "        begin = time.monotonic()\n"
                "        left = 2 * each\n"
                "        while left > 0:\n"
                "            for caller in select.select(callers, [], [])[0]:\n"
                "                left -= len(caller.recv(65536))\n"
                "        print('both took', time.monotonic() - begin)\n"
                "else:\n"
                "    end = time.monotonic() + 20\n"
                "    while True:\n"
                "        begin = time.monotonic()\n"
                "        try:\n"
                "            caller = socket.create_connection(('10.78.0.1', 5000))\n"
                "            break\n"
                "        except OSError:\n"
                "            assert begin < end\n"
                "    assert caller.recv(1) == b'x'\n"
                "    caller.sendall(bytes(each))\n"))
            self.assertEqual(got.returncode, 0, got.stderr)
            found = re.search(r"both took ([\d.]+)", got.stdout.decode())
            # What the bucket holds comes at once.
            self.assertGreaterEqual(float(found[1]), (2 * each - 200_000) * 8 / 100e6, delay)

    def test_a_failure_ends_all(self):
        got = run(TESTBED, "--hosts", 3, "--", "sh", "-c",
                  "[ $RUBATO_RANK = 1 ] && exit 5; exec sleep 1000")
        self.assertEqual(got.returncode, 5)
        self.assertIn(b"rank 1 ended with 5", got.stderr)

    def test_time_is_up(self):
        got = run(TESTBED, "--hosts", 2, "--timeout", 1, "--", "sleep", 1000)
        self.assertEqual(got.returncode, 124)

    def test_nothing_is_left_when_it_is_killed(self):
        for number in signal.SIGKILL, signal.SIGTERM:
            word = f"left-by-{os.getpid()}-{number}"
            process = start(TESTBED, "--hosts", 2, "--", *python(
                f"# {word}\n"
                "import os, time\n"
                "os.fork() or print(os.readlink('/proc/self/ns/net'), flush=True)\n"
                "time.sleep(1000)"))
            self.addCleanup(process.stdout.close)
            self.addCleanup(process.stderr.close)
            hosts = {process.stdout.readline().decode().split()[1] for _ in range(2)}
            there = namespaces()
            pids = [int(pid) for host in hosts for pid in there[host]]
            self.assertGreaterEqual(sum(names(pid, word) for pid in pids), 4)
            watch = Watch(pids)
            process.send_signal(number)
            self.assertEqual(watch.alive(), [])
            process.wait()
            there = namespaces()
            self.assertEqual([pid for host in hosts for pid in there.get(host, ())
                              if names(pid, word)], [])

    def test_the_secret_is_private_and_in_no_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            source = (
                "import os; f = os.environ['RUBATO_SECRET_FILE']; s = os.stat(f);"
                "print(oct(s.st_mode), s.st_nlink, len(open(f).read()),"
                "      *os.listdir(os.environ['TMPDIR']))"
            )
            got = run(TESTBED, "--hosts", 2, "--", *python(source), env={"TMPDIR": folder})
            self.assertEqual(got.returncode, 0, got.stderr.decode())
            lines = [line.split()[1:] for line in got.stdout.decode().splitlines()]
            self.assertEqual(lines, 2 * [[oct(stat.S_IFREG | 0o600), "0", "48"]])

    def test_nothing_is_left_when_it_is_ended_before_there_are_hosts(self):
        with tempfile.TemporaryDirectory() as folder:
            slow = pathlib.Path(folder, "unshare")
            said = pathlib.Path(folder, "said")
            slow.write_text(f"#!/bin/sh\necho $$ >{said}.new && mv {said}.new {said}\n"
                            "exec sleep 1000\n")
            slow.chmod(0o755)
            process = start(TESTBED, "--hosts", 2, "--", "true",
                            env={"PATH": f"{folder}:{os.environ['PATH']}", "TMPDIR": folder})
            while not said.exists() and process.poll() is None:
                time.sleep(0.01)
            watch = Watch([int(said.read_text())])
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(30), 128 + signal.SIGTERM, process.communicate())
            process.communicate()
            self.assertEqual(watch.alive(), [])
            self.assertEqual(sorted(os.listdir(folder)), ["said", "unshare"])

    def test_a_trainer_across_three_hosts(self):
        with tempfile.TemporaryDirectory() as folder:
            self.data_make(folder)
            words = ["--data", f"npy:{folder}", "--model", "mlp", "--hidden", 8, "--batch", 4,
                     "--steps", 40, "--quiet"]
            got = run(TESTBED, "--hosts", 3, "--rate", "1Gbit", "--", TRAIN, *words,
                      "--out", f"{folder}/out", "--save", f"{folder}/hosts.npy")
            self.assertEqual(got.returncode, 0, got.stderr.decode())
            summary = json.loads(pathlib.Path(folder, "out/summary.json").read_text())
            self.assertEqual((summary["ranks"], summary["simulated"]), (3, False))
            self.assertGreater(summary["bytes_sent"], 0)
            here = run(TRAIN, "--ranks", 3, *words, "--save", f"{folder}/here.npy",
                       env={"RUBATO_ALGORITHM": "allreduce=flat"})
            self.assertEqual(here.returncode, 0, here.stderr.decode())
            self.near(f"{folder}/hosts.npy", f"{folder}/here.npy")

    def near(self, one, other):
        """Other algorithms add in other orders."""
        a, b = (self.vector(path) for path in (one, other))
        self.assertEqual(len(a), len(b))
        self.assertLess(max(abs(x - y) for x, y in zip(a, b)), 1e-5)

    @staticmethod
    def vector(path):
        data = pathlib.Path(path).read_bytes()
        return memoryview(data[10 + int.from_bytes(data[8:10], "little"):]).cast("f").tolist()

    @staticmethod
    def data_make(folder):
        sys.path.insert(0, str(TESTBED.parent))
        from reproduction import common
        common.write_npy(f"{folder}/x.npy", "<f4", (ROWS, FEATURES), common.floats(
            (row * 7919 + k * 104729) % 1009 / 1009 for row in range(ROWS)
            for k in range(FEATURES)))
        common.write_npy(f"{folder}/y.npy", "|u1", (ROWS,), bytes(r % 3 for r in range(ROWS)))

    def test_nonsense_is_refused(self):
        check_usage(self, TESTBED, "--hosts", 0, "true", says="--hosts")
        check_usage(self, TESTBED, "--rate", "fast", "true", says="--rate")
        for words in (("--burst", 1513), ("--delay", 1, "--burst", 8999),
                      ("--rate", "1Mbit", "--burst", 1 << 30)):
            check_usage(self, TESTBED, *words, "true", says="--burst")
        check_usage(self, TESTBED, says="command")
        help_text = subprocess.run([TESTBED, "--help"], capture_output=True, check=True).stdout
        self.assertIn(b"usage: testbed", help_text)


main()
