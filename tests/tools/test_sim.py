"""test_sim -- rubato-sim from outside: rows that are right, bytes that repeat, faults, campaigns.

usage: test_sim.py RUBATO-SIM
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from programs import main

SIM = sys.argv.pop(1)
OPS = (
    "allreduce reduce_scatter allgather broadcast reduce alltoall gather scatter allgatherv "
    "reduce_scatterv alltoallv barrier sendrecv"
).split()


def sim(*words):
    return subprocess.run([SIM, *words], capture_output=True, text=True, timeout=100, check=False)


def results(*words):
    done = sim(*words, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


class Table(unittest.TestCase):
    def test_every_operation_is_right_on_every_network(self):
        for op in OPS:
            for extra in ["--topology", "flat"], ["--topology", "nodes:3", "--reorder"]:
                found = results(op, "-n", "7", "-e", "32K", "--jitter", "0.5", *extra)
                self.assertEqual(found["ranks"], 7)
                self.assertGreater(len(found["results"]), 0)
                for row in found["results"]:
                    self.assertEqual((row["op"], row["wrong"]), (op, 0))
                    self.assertGreater(row["messages"], 0)

    def test_equal_seeds_give_equal_bytes(self):
        words = ["allreduce", "-n", "9", "-e", "8K", "--jitter", "0.7", "--skew", "exp:50us"]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            first = sim(*words, "--seed", "5", "--json", "-").stdout
            sim(*words, "--seed", "5", f"--json={path}")
            self.assertEqual(os.listdir(folder), ["out.json"])
            with open(path) as file:
                self.assertEqual(first, file.read())
        self.assertNotEqual(first, sim(*words, "--seed", "6", "--json", "-").stdout)

    def test_time_is_the_models(self):
        # Two ranks, 1 byte a ns, 10 us: an exchange of 1000 bytes takes latency and bytes.
        row = results("sendrecv", "-n", "2", "-b", "1000", "-e", "1000", "--latency", "10us",
                      "--bandwidth", "1GB/s")["results"][0]
        self.assertEqual(row["time_us"]["median"], 11)
        slow = results("sendrecv", "-n", "2", "-b", "1000", "-e", "1000", "--latency", "10us",
                       "--bandwidth", "800Mbit")["results"][0]
        self.assertEqual(slow["time_us"]["median"], 20)

    def test_skew_is_waited_for(self):
        row = results("barrier", "-n", "5", "--skew", "linear:10ms")["results"][0]
        self.assertGreater(row["in_call_us"]["mean"], 4900)
        self.assertGreaterEqual(row["in_call_us"]["p99"], 10000)

    def test_at_once_ranks_enter_as_they_come(self):
        # Rank 2, on the other node, leaves the barrier 1 us after the root.
        words = ["broadcast", "-n", "3", "-b", "8", "-e", "8", "-t", "1", "--topology", "nodes:2",
                 "--algorithm", "binomial", "--latency", "10us", "--node-latency", "1us"]
        apart, = results(*words)["results"]
        close, = results(*words, "--at-once")["results"]
        self.assertEqual((apart["wrong"], close["wrong"]), (0, 0))
        self.assertAlmostEqual(apart["time_us"]["slowest"], 10, delta=0.01)
        self.assertAlmostEqual(close["time_us"]["slowest"], 9, delta=0.01)
        bad = sim(*words, "--at-once", "--skew", "linear:1ms")
        self.assertEqual((bad.returncode, bad.stderr.count("\n")), (2, 1))

    def test_ranks_of_a_core_take_turns(self):
        words = ["barrier", "-n", "2", "-t", "1", "--topology", "nodes:2", "--node-latency", "1us"]
        one, = results(*words, "--cores", "2", "--turn", "7us")["results"]
        two, = results(*words, "--cores", "1", "--turn", "7us")["results"]
        self.assertEqual(one["time_us"]["median"], 1)
        # One enters and waits; a turn later the other one enters, and has its message; another turn
        # later the first one looks again.
        self.assertEqual(two["time_us"]["slowest"], 14)

    def test_a_forced_algorithm_runs(self):
        row = results("allreduce", "-n", "4", "-b", "4K", "-e", "4K", "--algorithm", "ring")
        self.assertEqual(row["results"][0]["algorithm"], "ring")


class Choice(unittest.TestCase):
    def test_a_cell_is_what_each_algorithm_takes(self):
        words = "-n 8 -b 64K -e 64K --topology nodes:4".split()
        row, = results("choice", *words, "--operations", "allreduce", "--all")["results"]
        times = {name: other["us"] for name, other in row["others"].items()}
        times[row["chosen"]] = row["us"]
        self.assertGreater(len(times), 3)
        self.assertEqual(min(times.values()), row["best_us"])
        self.assertEqual(times[row["best"]], row["best_us"])
        self.assertAlmostEqual(row["loss_percent"], (row["us"] / row["best_us"] - 1) * 100)
        ring = results("allreduce", *words, "-t", "1", "--algorithm", "ring")["results"][0]
        self.assertEqual(ring["time_us"]["slowest"], times["ring"])

    def test_a_bound_that_is_broken_fails(self):
        words = "choice -n 4 -b 1K -e 1K --operations barrier,allreduce".split()
        found = results(*words)
        self.assertEqual([row["op"] for row in found["results"]], ["allreduce", "barrier"])
        most = max(row["loss_percent"] for row in found["results"])
        self.assertEqual(sim(*words, "--bound", str(most + 0.1)).returncode, 0)
        if most > 0.1:
            self.assertEqual(sim(*words, "--bound", str(most - 0.1)).returncode, 1)
        done = sim("choice", "--operations", "sendrecv")
        self.assertEqual((done.returncode, len(done.stderr.splitlines())), (2, 1))


class Network(unittest.TestCase):
    SENDRECV = "sendrecv -n 2 -b 1000 -e 1000 --latency 10us --bandwidth 1GB/s".split()

    def time(self, *words):
        return results(*self.SENDRECV, *words)["results"][0]["time_us"]["median"]

    def test_costs_are_charged(self):
        self.assertEqual(self.time(), 11)
        self.assertEqual(self.time("--send", "1us", "--receive", "2us"), 14)
        self.assertEqual(self.time("--gap", "0.5us"), 11.5)
        self.assertEqual(self.time("--burst", "400"), 10.6)
        self.assertEqual(self.time("--burst", "1K"), 10)
        # A copy at each end, of 1000 bytes read and written.
        self.assertEqual(self.time("--core-bandwidth", "1GB/s"), 15)
        self.assertEqual(self.time("--memory-bandwidth", "4GB/s", "--work", "1us"), 12)
        one = ["--topology", "nodes:2", "--node-latency", "3us", "--node-bandwidth", "1GB/s"]
        self.assertEqual(self.time(*one), 4)
        self.assertEqual(self.time(*one, "--node-send", "1us", "--node-receive", "2us"), 7)
        # Two ranks that copy at once share the memory, twice.
        self.assertEqual(self.time(*one, "--memory-bandwidth", "4GB/s"), 3 + 2)

    def test_what_lies_in_caches_is_faster(self):
        words = "allreduce -n 2 -b 64K -e 64K --topology nodes:2 --core-bandwidth 1GB/s".split()
        words += ["--algorithm", "two_shot"]
        caches = ["--cached-bandwidth", "10GB/s", "--shared-bandwidth", "5GB/s"]
        plain = results(*words)["results"][0]
        cached = results(*words, *caches, "--cache", "1M")["results"][0]
        self.assertLess(cached["time_us"]["median"], plain["time_us"]["median"] / 2)
        again = results(*words, *caches, "--cache", "1M")["results"][0]
        self.assertEqual(again["trace_hash"], cached["trace_hash"])
        late = results(*words, *caches, "--cache", "1M", "--shared-latency", "9us")["results"][0]
        self.assertGreater(late["time_us"]["median"], cached["time_us"]["median"] + 9)
        slower = results(*words, *caches, "--cache", "1M", "--reduced-bandwidth", "5GB/s")
        self.assertGreater(slower["results"][0]["time_us"]["median"], cached["time_us"]["median"])
        small = results(*words, *caches, "--cache", "64K")["results"][0]["time_us"]["median"]
        outer = results(*words, *caches, "--cache", "64K", "--outer-cache", "1M",
                        "--outer-bandwidth", "4GB/s")
        self.assertLess(outer["results"][0]["time_us"]["median"], small)
        self.assertGreater(outer["results"][0]["time_us"]["median"], cached["time_us"]["median"])
        self.assertEqual(outer["network"]["outer_cache_bytes"], 1 << 20)
        refused = sim(*"allreduce -n 2 -b 8 -e 8 --cache 1M".split())
        self.assertEqual((refused.returncode, len(refused.stderr.splitlines())), (2, 1))

    def test_the_kernel_makes_long_copies(self):
        words = "sendrecv -n 2 -b 600000 -e 600000 --topology nodes:2 --node-latency 1us".split()
        words += ["--core-bandwidth", "2GB/s"]
        # Both send: each makes half of two copies, once both are asked for.
        for kernel, us in (None, 3 + 600), ("3GB/s", 3 + 600), ("1GB/s", 3 + 1200):
            found = results(*words, *(["--attach-bandwidth", kernel] if kernel else []))
            self.assertEqual(found["results"][0]["time_us"]["median"], us)
            self.assertEqual(found["network"]["attach_bandwidth"],
                             float(kernel[0]) * 1e9 if kernel else 0)

    def test_a_nodes_ranks_share_its_cards(self):
        words = "alltoall -n 4 -b 4000 -e 4000 --algorithm flat --bandwidth 1GB/s".split()
        words += ["--topology", "nodes:2", "--node-latency", "0.001us"]
        own, one, two = (results(*words, "--cards", str(cards))["results"][0]["time_us"]["median"]
                         for cards in range(3))
        self.assertEqual(own, two)
        # Each sends two blocks of 1000 bytes to the other node: one rank there gets two first
        # ones, the other two second ones.
        self.assertEqual(own, ((5 + 2) + (5 + 3)) / 2)
        self.assertGreaterEqual(one, own + 1)
        self.assertLessEqual(one, 5 + 5)

    def test_nodes_may_be_uneven(self):
        words = ["allreduce", "-n", "7", "-e", "64K"]
        even = results(*words, "--topology", "nodes:3")["results"]
        self.assertEqual(even, results(*words, "--topology", "nodes:3,3")["results"])
        for row in results(*words, "--topology", "nodes:4,1,2")["results"]:
            self.assertEqual(row["wrong"], 0)
        self.assertEqual(sim("partial", "-n", "7", "--topology", "nodes:4,1,2").returncode, 0)

    def test_a_profile_says_what_options_say(self):
        text = "# A machine.\n\nlatency 7us\t# one way\r\n  bandwidth   2GB/s\nsend 1us"
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write(text)
            file.flush()
            words = ["sendrecv", "-n", "2", "-b", "1000", "-e", "1000"]
            read = results(*words, "--profile", file.name)
            given = results(*words, "--latency", "7us", "--bandwidth", "2GB/s", "--send", "1us")
            self.assertEqual(read["results"][0]["time_us"]["median"], 8.5)
            self.assertEqual(read["results"], given["results"])
            self.assertEqual(read["network"], given["network"])
            self.assertEqual(read["network"]["send_ns"], 1000)
            self.assertEqual(results(*words, "--profile", file.name, "--latency", "9us")
                             ["network"]["latency_ns"], 9000)
            self.assertEqual(results(*words, "--latency", "9us", "--profile", file.name)
                             ["network"]["latency_ns"], 7000)
            json_of = sim("partial", "--profile", file.name, "--json", "-").stdout
            self.assertEqual(json.loads(json_of)["network"], given["network"])

    def test_a_bad_profile_is_one_line_that_says_where(self):
        for text, sentence in (("latency 1us\nlatncy 2us\n", "line 2: what is 'latncy'?"),
                               ("latency", "line 1: latency takes one value"),
                               ("latency 1us 2us", "line 1: latency takes one value"),
                               ("latency 5", "line 1: --latency takes a time"),
                               ("profile x", "line 1: what is 'profile'?"),
                               ("ranks 5", "line 1: what is 'ranks'?"),
                               ("latency 1us\0", "is not a text"),
                               ("#" * 70000, "is not a text")):
            with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
                file.write(text)
                file.flush()
                done = sim("barrier", "--profile", file.name)
            self.assertEqual((done.returncode, done.stdout), (2, ""), text[:20])
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertIn(sentence, done.stderr)
        for path in "/", "/no-such-file":
            self.assertIn("cannot be read", sim("barrier", "--profile", path).stderr)

    def test_a_thousand_ranks(self):
        row = results("allreduce", "-n", "1024", "-b", "64K", "-e", "64K", "-t", "1")["results"][0]
        self.assertEqual((row["wrong"], row["count"]), (0, 16384))
        self.assertGreaterEqual(row["message_bytes"], 2 * 65536 * 1023)


class Faults(unittest.TestCase):
    def test_delays_are_survived(self):
        words = ["allreduce", "-n", "4", "-b", "64", "-e", "64"]
        plain = results(*words)["results"][0]
        frozen = results(*words, "--faults", "freeze:1@350us+5ms,cut:0-2@360us+3ms")["results"][0]
        self.assertEqual((frozen["faults_fired"], frozen["wrong"]), (2, 0))
        self.assertNotEqual(frozen["trace_hash"], plain["trace_hash"])

    def test_a_crash_is_an_error_that_names_the_seed(self):
        done = sim("allreduce", "-n", "4", "--seed", "77", "--faults", "crash:1@350us")
        self.assertEqual(done.returncode, 1)
        self.assertIn("seed 77", done.stderr)

    def test_one_that_finds_nobody_is_told(self):
        for words in ["allreduce", "-b", "64", "-e", "64"], ["partial", "--policy", "solo"]:
            done = sim(*words, "-n", "4", "--faults", "freeze:1@350us+1us,crash:1@100s")
            self.assertEqual((done.returncode, done.stderr.count("\n")), (0, 1), done.stderr)
            self.assertIn("1 of 2 faults fired", done.stderr)


class Campaign(unittest.TestCase):
    def test_seeds_pass(self):
        first = sim("campaign", "--seed", "1000", "--seeds", "25", "--json", "-")
        self.assertEqual(first.returncode, 0, first.stderr)
        found = json.loads(first.stdout)
        self.assertEqual((found["seeds"], found["failed"]), (25, 0))
        self.assertGreater(sum(found["faults_fired"].values()), 0)
        again = sim("campaign", "--seed", "1000", "--seeds", "25", "--json", "-")
        self.assertEqual(first.stdout, again.stdout)


class Options(unittest.TestCase):
    def test_nonsense_is_one_line_and_status_2(self):
        lines = """everything
            allreduce -n 0
            allreduce --latency 5
            allreduce --bandwidth 10
            allreduce --topology ring
            allreduce --topology nodes:2,
            allreduce --topology nodes:2,0
            allreduce --cards x
            allreduce --send 1
            allreduce --send 3601s
            allreduce --memory-bandwidth 0
            allreduce --skew exp
            allreduce --faults crash:1@1ms+1ms
            allreduce --faults freeze:9@1ms+1ms
            allreduce --algorithm best
            reduce -r 8
            allreduce --seeds 5
            campaign allreduce
            campaign --seeds 5 --algorithm ring
            campaign --ranks 4
            allreduce --cache 1G
            allreduce --cache 4000G --memory-bandwidth 10GB/s
            partial --cache 1G
            lagged --cache 1G
            choice --cache 1G
            allreduce --unknown"""
        for words in [[], *map(str.split, lines.splitlines())]:
            done = sim(*words)
            self.assertEqual(done.returncode, 2, words)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertEqual(done.stdout, "")

    def test_a_result_that_cannot_be_written_is_status_1(self):
        few = ["-n", "2"]
        for words in (["allreduce", *few, "-e", "8"], ["lagged", *few],
                      ["campaign", "--seeds", "1"], ["laws", "--seeds", "2"],
                      ["choice", *few, "-b", "8", "-e", "8"]):
            done = sim(*words, "--json", "/dev/full")
            self.assertEqual(done.returncode, 1, words)
            self.assertEqual(done.stderr,
                             "rubato-sim: --json: /dev/full could not be written: "
                             "No space left on device\n", words)

    def test_buffers_without_memory_are_told(self):
        done = sim("allreduce", "-n", "2", "-b", "64G", "-e", "64G")
        if done.returncode == 0:
            self.skipTest("this machine has that much")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r": memory: rank \d: \d+ bytes of buffers\n$")


if __name__ == "__main__":
    main()
