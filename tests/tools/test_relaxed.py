"""test_relaxed -- the relaxed tools from outside: laws, partial and lagged, simulated and real.

usage: test_relaxed.py RUBATO-SIM RUBATO-BENCH
"""

import json
import os
import re
import sys
import tempfile
import unittest

from programs import check_usage, main, policy_forms, run, takes

SIM, BENCH = sys.argv[1:3]
del sys.argv[1:3]

def policies():
    """Every policy as a user would give it, without a number where it may be left out; and those
    with one, twice each: pairs."""
    whole, pairs = [], []
    refusal = run(SIM, "partial", "--policy", "no-such-word").stderr.decode()
    for word, numbers, needs_one in policy_forms(takes(refusal)):
        pair = [f"{word}:{number}" for number in numbers]
        pairs += [pair] if pair else []
        whole.append(pair[0] if needs_one else word)
    return whole, pairs


POLICIES, NUMBERED = policies()


def said(program, *words):
    """With --json on standard output, parsed."""
    got = run(program, *words, "--json", "-")
    assert got.returncode == 0, got.stderr.decode()
    return json.loads(got.stdout)


# ThreadSanitizer has nothing to see where ranks are simulated: fibers of one thread.
only_simulated = unittest.skipIf(os.environ.get("TEST_LENGTH") == "threads", "there are no threads")


@only_simulated
class Laws(unittest.TestCase):
    def test_json_is_the_contract(self):
        found = said(SIM, "laws", "--seed", 100, "--seeds", 60)
        self.assertEqual((found["seed"], found["seeds"], found["failed"]), (100, 60, 0))
        self.assertGreater(found["rounds"], 0)
        self.assertEqual(set(found["faults_fired"]), {"freeze", "crash", "cut"})
        for kind in ("freeze", "crash"):
            self.assertGreater(found["faults_fired"][kind], 0)
            self.assertEqual(found["faults_fired"][kind], found["faults_drawn"][kind])
        self.assertEqual(list(found["operations"]), [policy.split(":")[0] for policy in POLICIES])
        self.assertTrue(all(count > 0 for count in found["operations"].values()))
        self.assertGreater(found["lagged"], 0)

    def test_a_seed_is_the_same_again(self):
        words = [SIM, "laws", "--seed", 4711, "--seeds", 20, "--json", "-"]
        self.assertEqual(run(*words).stdout, run(*words).stdout)
        words[3] = 9000
        self.assertNotEqual(run(*words).stdout, run(*words[:3], 4711, *words[4:]).stdout)

    def test_one_seed_is_described(self):
        got = run(SIM, "laws", "--seed", 5400, "--seeds", 1, "--json", "-")
        self.assertEqual((got.returncode, json.loads(got.stdout)["failed"]), (0, 0))
        text = got.stderr.decode()
        self.assertRegex(text, r"(?m)^  \d+ ranks, \d+ a node")
        described = re.findall(r"(?m)^  operation \d+: (\w+)[:,]", text)
        drawn = json.loads(got.stdout)["operations"]
        self.assertEqual(drawn, {policy: described.count(policy) for policy in drawn})
        got = run(SIM, "laws", "--seed", 5400, "--seeds", 2)
        self.assertNotIn("operation", got.stderr.decode())

    def test_nonsense_is_refused(self):
        check_usage(self, SIM, "laws", "--seeds", 0, says="--seeds")
        check_usage(self, SIM, "laws", "--seed", "many", says="--seed")
        check_usage(self, SIM, "laws", "--sometimes", says="--sometimes")
        check_usage(self, SIM, "laws", "--json", "/", says="cannot write /: Is a directory")


@only_simulated
class Simulated(unittest.TestCase):
    def check_partial(self, found, policies):
        rows = found["results"]
        self.assertEqual([row["policy"] for row in rows], ["allreduce", *policies])
        for row in rows:
            self.assertEqual(row["wrong"], 0, row["policy"])
            self.assertNotIn("cpu_us", row)
            self.assertLessEqual(row["in_call_us"]["mean"], row["in_call_us"]["p99"])
            self.assertLessEqual(row["fresh_mean"], row["contributors_mean"])
            self.assertGreaterEqual(row["staleness_max"], 0)
            self.assertGreater(row["rounds"], 0)

    def test_rounds_that_only_drain_are_not_counted_as_stale(self):
        """Each of the eight slices ends in a drain, whose rounds hold nothing fresh."""
        words = ["-n", 16, "-t", 200, "-s", "1K", "--policy", "solo,quorum:4", "--skew",
                 "linear:1ms"]
        found = said(SIM, "partial", *words)["results"]
        solo, quorum = found[1], found[2]
        self.assertGreater(solo["rounds"], 200)  # Those of drains are among them.
        self.assertEqual(solo["fresh_mean"], 1)
        self.assertGreaterEqual(quorum["fresh_mean"], 4)

    def test_values_are_right_under_every_policy(self):
        words = ["-n", 6, "-t", 40, "-s", "2K", "--policy", ",".join(POLICIES), "--skew",
                 "exp:300us"]
        for more in (
            [],
            ["--rounds", "free"],
            ["--late", "latest"],
            ["--late", "drop", "--collect", "own"],
            ["--collect", "latest", "--op", "max"],
            ["--collect", "each:2", "--window", "50us", "--max-absence", 3, "--type", "int64"],
            ["--topology", "nodes:2", "--jitter", "1", "--reorder", "--full-every", 4],
        ):
            with self.subTest(more):
                self.check_partial(said(SIM, "partial", *words, *more), POLICIES)

    def test_a_policys_number_is_heard(self):
        """In jobs of their own, which would be the same to the byte but for the name."""
        self.assertGreaterEqual(len(NUMBERED), 4)
        for pair in NUMBERED:
            with self.subTest(pair):
                rows = [said(SIM, "partial", "-n", 6, "-t", 64, "-s", "1K", "--skew", "linear:6ms",
                             "--policy", policy)["results"][1] for policy in pair]
                self.assertEqual([row.pop("policy") for row in rows], pair)
                self.assertNotEqual(*rows)

    def test_conditions_are_equal(self):
        """The synchronous forms go round as many buffers as the first policy."""
        counts = set()
        for policies in "quorum:4,solo", "solo,quorum:4":
            words = ["-n", 4, "-t", 16, "-w", 20, "-s", "1K", "--policy", policies,
                     "--skew", "rotating:2ms", "--helped"]
            rows = said(SIM, "partial", *words)["results"]
            sync, first, helped = rows[0]["buffers"], rows[1]["buffers"], rows[3]["buffers"]
            self.assertEqual(sync, first)
            self.assertEqual(helped, first)
            counts.add(tuple(first.values()))
        self.assertGreater(len(counts), 1, "nothing differed that could have been followed")
        rows = said(SIM, "partial", "-n", 4, "-t", 16, "-w", 0, "--policy", "solo")["results"]
        self.assertEqual(rows[0]["buffers"], {"inputs": 1, "results": 1})

    def test_the_helped_one_is_right(self):
        for op in "sum", "max":
            rows = said(SIM, "partial", "-n", 5, "-t", 16, "-s", "128K", "--op", op, "--policy",
                        "solo", "--skew", "rotating:1ms", "--helped")["results"]
            helped = rows[2]
            self.assertEqual((helped["policy"], helped["op"]), ("helped", "allreduce"))
            self.assertEqual((helped["wrong"], helped["rounds"]), (0, 16))
            self.assertNotIn("spent_us", helped)

    def test_ratios_of_medians(self):
        rows = said(SIM, "partial", "-n", 4, "-t", 64, "-s", "1K", "--policy", "solo", "--skew",
                    "exp:1ms")["results"]
        for row in rows:
            over = row["over_allreduce"]
            self.assertLessEqual(over["low"], over["ratio"])
            self.assertLessEqual(over["ratio"], over["high"])
        self.assertEqual(rows[0]["over_allreduce"], {"ratio": 1, "low": 1, "high": 1})
        self.assertLess(rows[1]["over_allreduce"]["high"], 1)

    def test_solo_waits_less_than_all_do(self):
        rows = said(SIM, "partial", "-n", 8, "-t", 64, "-s", "1K", "--policy", "solo,quorum:8",
                    "--skew", "linear:8ms")["results"]
        sync, solo, all_of_them = (row["in_call_us"]["mean"] for row in rows)
        self.assertGreater(sync, 3500)  # Half of the skew, on average.
        self.assertGreater(all_of_them, 3500)
        self.assertLess(solo, sync / 10)
        self.assertGreater(rows[2]["fresh_mean"], rows[1]["fresh_mean"])

    def test_equal_seeds_give_equal_bytes(self):
        for op, words in [("partial", ["--skew", "exp:100us"]), ("lagged", ["--lag", 2])]:
            words = [SIM, op, "-n", 5, "-t", 24, "--jitter", "0.5", *words, "--json", "-"]
            first = run(*words, "--seed", 3)
            self.assertEqual(first.returncode, 0, first.stderr)
            self.assertEqual(first.stdout, run(*words, "--seed", 3).stdout)
            self.assertNotEqual(first.stdout, run(*words, "--seed", 4).stdout)

    def test_lagged_hides_what_it_can(self):
        for more in ([], ["--lag", 3], ["--accumulate", 4], ["--accumulate", "until-done"]):
            rows = said(SIM, "lagged", "-n", 4, "-t", 64, "--compute-time", "5ms", *more)["results"]
            self.assertEqual([row["policy"] for row in rows], ["allreduce", "lagged"])
            for row in rows:
                self.assertEqual(row["wrong"], 0)
                self.assertGreaterEqual(row["step_us"], 5000)
                self.assertIn("idle_fraction", row)
            # Exposed is what is flushed: the last of each slice of eight steps.
            self.assertGreater(rows[1]["overlap_percent"], 50)

    def test_nonsense_is_refused(self):
        for words, says in (
            (["partial", "--policy", "sole"], "sole"),
            (["partial", "-n", 4, "--policy", "quorum:5"], "quorum:5"),
            (["partial", "-n", 4, "--policy", "wagma:3"], "wagma:3"),
            (["partial", "--policy", "quorum:0"], "quorum:"),
            (["partial", "--policy", "adaptive:0"], "adaptive:"),
            (["partial", "-n", 4, "--policy", "adaptive:5"], "adaptive:5"),
            (["partial", "--collect", "each:0"], "each:"),
            (["partial", "--collect", "some"], "some"),
            (["partial", "--rounds", "square"], "rounds"),
            (["partial", "--late", "never"], "late"),
            (["partial", "--skew", "exp"], "skew"),
            (["partial", "-n", 4, "--skew", "rank:4:1ms"], "rank:4"),
            (["partial", "--skew", "trace:/nowhere/at/all"], "trace"),
            (["partial", "--lag", 1], "--lag"),
            (["partial", "--loop", "open"], "--loop"),
            (["partial", "--loop", "closed", "--period", "1ms"], "--period"),
            (["partial", "--ledger", "/nowhere/at/all"], "--ledger"),
            (["partial", "--ledger", "-"], "--ledger"),
            (["lagged", "--lag", 0], "--lag"),
            (["lagged", "--accumulate", 0], "--accumulate"),
            (["lagged", "--policy", "solo"], "--policy"),
            (["partial", "more"], "more"),
        ):
            with self.subTest(words):
                check_usage(self, SIM, *words, says=says)


    def test_a_closed_loop_is_timed_as_a_whole(self):
        words = ["-n", 4, "-t", 64, "-s", 64, "--loop", "closed", "--skew", "rank:1:1ms"]
        rows = said(SIM, "partial", *words, "--policy", "solo,quorum:4")["results"]
        for row in rows:
            self.assertEqual(row["wrong"], 0)
            self.assertGreaterEqual(row["loop_us"], 64000)
        # Aligned rounds end with the slow rank's last step: all take its time, and their calls'.
        for row in rows:
            self.assertLess(row["loop_us"], 64000 * 1.2)
        words += ["--rounds", "free", "--policy", "solo"]
        row = said(SIM, "partial", *words)["results"][1]
        self.assertGreaterEqual(row["loop_us"], 64000)


class Ledger(unittest.TestCase):
    RANKS, CALLS = 5, 64 + 3  # Warm-up included.

    def lines_of(self, program, *words, status=0):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "ledger.jsonl")
            got = run(program, "partial", "-n", self.RANKS, "-t", 64, "-w", 3, "-s", "1K",
                      "--ledger", path, *words)
            self.assertEqual(got.returncode, status, got.stderr)
            self.assertEqual(os.listdir(folder), ["ledger.jsonl"] if status == 0 else [])
            if status != 0:
                return []
            with open(path) as file:
                return [json.loads(line) for line in file]

    def check_conserved(self, lines, policies):
        self.assertEqual({line["policy"] for line in lines}, set(policies))
        for policy in policies:
            mine = [line for line in lines if line["policy"] == policy]
            self.assertEqual([line["update"] for line in mine], list(range(len(mine))))
            self.assertEqual([line["round"] for line in mine], list(range(len(mine))))
            due = [0] * self.RANKS  # Every contribution once, in order.
            for line in mine:
                self.assertEqual((line["weight_denominator"], line["discarded"]), (1, 0))
                for rank, first, last in line["contributions"]:
                    self.assertEqual(first, due[rank], (policy, line))
                    due[rank] = last + 1
                ranks = {rank for rank, _, _ in line["contributions"]}
                self.assertLessEqual(set(line["fresh"]), ranks)
            self.assertEqual(due, [self.CALLS] * self.RANKS, policy)

    @only_simulated
    def test_every_contribution_is_in_it_once(self):
        policies = "solo", "majority", "quorum:2", "adaptive", "adaptive:1"
        for words in [], ["--rounds", "free"], ["--window", "50us", "--loop", "closed"]:
            for skew in "exp:300us", "rotating:2ms":
                lines = self.lines_of(SIM, "--policy", ",".join(policies), "--skew", skew, *words)
                self.check_conserved(lines, policies)
                # Somebody was late, or the ledger has shown little.
                self.assertTrue(any(last > first for line in lines
                                    for _, first, last in line["contributions"]))

    def test_what_is_dropped_is_missing_and_counted(self):
        lines = self.lines_of(SIM, "--policy", "solo", "--late", "drop", "--skew", "exp:300us")
        delivered = sum(len(line["contributions"]) for line in lines)
        for line in lines:
            for _, first, last in line["contributions"]:
                self.assertEqual(first, last)
        self.assertGreater(lines[-1]["discarded"], 0)
        self.assertEqual(delivered + lines[-1]["discarded"], self.RANKS * self.CALLS)

    def test_groups_are_named(self):
        self.RANKS = 6
        lines = self.lines_of(SIM, "--policy", "wagma:2", "--full-every", 4)
        self.check_conserved(lines, ["wagma:2"])
        for line in lines:
            if line["round"] % 4 == 3:
                self.assertNotIn("group", line)
            elif "group" in line:
                self.assertEqual(len(line["group"]), 2)
                self.assertIn(0, line["group"])
        self.assertTrue(any("group" in line for line in lines))

    def test_a_run_that_fails_leaves_none(self):
        self.lines_of(SIM, "--policy", "solo", "--faults", "crash:2@3ms", status=1)

    def test_between_processes(self):
        self.RANKS = 3
        lines = self.lines_of(BENCH, "--policy", "solo,quorum:2", "--skew", "exp:200us")
        self.check_conserved(lines, ["solo", "quorum:2"])


class Measured(unittest.TestCase):
    def test_partial_has_the_contracts_fields(self):
        found = said(BENCH, "partial", "-n", 3, "-t", 24, "-w", 2, "-s", "4K", "--policy",
                     "solo,quorum:2,adaptive", "--skew", "rotating:1ms")
        self.assertEqual(found["ranks"], 3)
        rows = found["results"]
        self.assertEqual([row["policy"] for row in rows],
                         ["allreduce", "solo", "quorum:2", "adaptive"])
        for row in rows:
            self.assertEqual((row["wrong"], row["size"], row["count"]), (0, 4096, 1024))
            self.assertEqual(set(row["in_call_us"]), {"mean", "p99"})
            for field in ("cpu_us", "fresh_mean", "contributors_mean", "staleness_max"):
                self.assertGreaterEqual(row[field], 0, field)
        self.assertEqual(rows[0]["op"], "allreduce")
        self.assertEqual({row["op"] for row in rows[1:]}, {"partial"})

    def test_lagged_has_the_contracts_fields(self):
        rows = said(BENCH, "lagged", "-n", 2, "-t", 16, "-w", 2, "-s", "4K",
                    "--compute-time", "500us")["results"]
        self.assertEqual([row["op"] for row in rows], ["allreduce", "lagged"])
        for row in rows:
            self.assertEqual(row["wrong"], 0)
            self.assertLessEqual(row["overlap_percent"], 100)
            self.assertGreaterEqual(row["step_us"], 500)

    def test_nonsense_is_refused(self):
        for words, says in (
            (["partial", "-n", 2, "--policy", "quorum:3"], "quorum:3"),
            (["partial", "-n", 2, "--collect", "never"], "never"),
            (["lagged", "-n", 2, "--lag", 0], "--lag"),
        ):
            check_usage(self, BENCH, *words, says=says)


if __name__ == "__main__":
    main()
