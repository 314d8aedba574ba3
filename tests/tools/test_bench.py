#!/usr/bin/env python3
"""test_bench.py RUBATO-BENCH RUBATO-RUN WRONG-RESULTS -- what rubato-bench prints and refuses."""

import csv
import json
import os
import re
import sys
import tempfile
import unittest

from programs import check_usage, main, run

BENCH, RUN, WRONG = sys.argv[1:4]
del sys.argv[1:4]

REDUCING = "allreduce reduce_scatter reduce reduce_scatterv".split()
OTHERS = "allgather broadcast alltoall gather scatter allgatherv alltoallv barrier sendrecv".split()
OPS = REDUCING + OTHERS
FEW = ["-w", 1, "-t", 3]


def bench(*words, env=None):
    """Runs with --json on standard output; returns the exit status and what it says."""
    got = run(BENCH, *words, "--json", "-", env=env)
    return got.returncode, json.loads(got.stdout), got.stderr.decode()


class Results(unittest.TestCase):
    def test_every_operation_type_and_operator_is_right(self):
        wider = 0
        for op in OPS:
            with self.subTest(op):
                sizes = ["-b", 4, "-e", "96K", "-f", 37]
                kinds = ["-d", "all", "-o", "all", "-r", 1]
                code, said, err = bench(op, "-n", 3, *sizes, *kinds, *FEW)
                self.assertEqual((code, err), (0, ""))
                self.assertEqual((said["ranks"], said["version"].count(".")), (3, 2))
                wider += sum(row["time_us"]["slowest"] < row["time_us"]["whole"]
                             for row in said["results"])
                types = {(row["type"], row["redop"]) for row in said["results"]}
                reduces = op in REDUCING
                self.assertEqual(len(types), 60 if reduces else 12)
                for row in said["results"]:
                    self.assertEqual((row["op"], row["impl"], row["wrong"]), (op, "rubato", 0))
                    times = row["time_us"]
                    self.assertLessEqual(times["min"], times["median"])
                    self.assertLessEqual(times["median"], times["p90"])
                    self.assertLessEqual(times["p90"], times["p99"])
                    self.assertLessEqual(times["p99"], times["max"])
                    self.assertLessEqual(times["mean"], times["max"] * 1.000001)
                    self.assertLessEqual(times["min"], times["slowest"])
                    # An iteration's own times lie within it, so the medians do, too.
                    self.assertLessEqual(times["slowest"], times["whole"])
        self.assertGreater(wider, 0) # Ranks do not all begin when the slowest one does.

    def test_both_buffers(self):
        for buffers in ("plain", "registered"):
            code, said, _ = bench(
                "allreduce", "-n", 2, "-b", "64K", "-e", "64K", "--buffers", buffers, *FEW
            )
            self.assertEqual(code, 0)
            self.assertEqual([row["buffers"] for row in said["results"]], [buffers] * 2)

    def test_sizes_and_factors(self):
        # size, count and bus factor as nccl-tests counts them, for 4 ranks.
        for op, count, factor in [
            ("allreduce", 1024, 1.5),
            ("reduce_scatter", 256, 0.75),
            ("allgather", 256, 0.75),
            ("broadcast", 1024, 1),
            ("reduce", 1024, 1),
            ("alltoall", 256, 0.75),
            ("gather", 256, 0.75),
            ("scatter", 256, 0.75),
            ("sendrecv", 1024, 1),
        ]:
            with self.subTest(op):
                _, said, _ = bench(op, "-n", 4, "-b", "4K", "-e", "4K", *FEW)
                row = said["results"][0]
                self.assertEqual((row["size"], row["count"]), (4096, count))
                self.assertAlmostEqual(row["algbw"], 4096 / row["time_us"]["median"] / 1e3, 6)
                self.assertAlmostEqual(row["busbw"], row["algbw"] * factor, 6)

    def test_uneven_blocks_are_as_the_help_says(self):
        halves = [2, 1, 4, 0, 3]
        for op in "allgatherv", "reduce_scatterv", "alltoallv":
            with self.subTest(op):
                _, said, _ = bench(op, "-n", 4, "-b", "4K", "-e", "4K", *FEW)
                row = said["results"][0]
                firsts = range(4) if op == "alltoallv" else [0]
                blocks = [halves[(a + b) % 5] for a in firsts for b in range(4)]
                size = 4 * 256 * sum(blocks) // 2 // len(firsts)
                self.assertEqual((row["size"], row["count"]), (size, 256))
                self.assertAlmostEqual(row["busbw"], row["algbw"] * 0.75, 6)

    def test_many_operations_at_a_time(self):
        for op in OPS:
            with self.subTest(op):
                sizes = ["-b", 4, "-e", "64K", "-f", 128]
                code, said, err = bench(op, "-n", 3, *sizes, "-r", 1, "-m", 3, "-w", 0, "-t", 2)
                self.assertEqual((code, err), (0, ""))
                self.assertEqual({(row["wrong"], row["aggregate"]) for row in said["results"]},
                                 {(0, 3)})

    def test_in_place_column_alone(self):
        for place in (0, 1):
            _, said, _ = bench("reduce", "-n", 2, "-e", "64", f"--in-place={place}", *FEW)
            self.assertEqual({row["in_place"] for row in said["results"]}, {place == 1})

    def test_sizes_go_from_begin_to_end(self):
        for words, sizes in [
            (["-b", 8, "-e", "1K", "-f", 4], [8, 32, 128, 512]),
            (["-b", "1K", "-e", "3K", "-i", "1K"], [1024, 2048, 3072]),
            (["-b", 0, "-e", 8], [0, 8]),
        ]:
            _, said, _ = bench("broadcast", "-n", 2, *words, *FEW)
            self.assertEqual([row["size"] for row in said["results"]], sizes)

    def test_every_algorithm(self):
        _, said, err = bench("allreduce", "-n", 3, "-e", "8K", "--algorithm", "all", *FEW)
        names = {row["algorithm"] for row in said["results"]}
        self.assertGreater(len(names), 1)
        self.assertEqual({row["wrong"] for row in said["results"]}, {0})
        for name in names:
            _, said, _ = bench("allreduce", "-n", 3, "-e", 8, "--algorithm", name, *FEW)
            self.assertEqual({row["algorithm"] for row in said["results"]}, {name})

    def test_algorithms_that_cannot_run_are_left_out(self):
        words = ["allgather", "-n", 2, "-e", 8, "--algorithm", "all", "--transport", "ucx", *FEW]
        got = run(BENCH, *words)
        if b"this build is without UCX" in got.stderr:
            self.skipTest("built without UCX")
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        self.assertIn(b"#   direct left out: ", got.stdout)
        words[words.index("all")] = "direct"
        got = run(BENCH, *words)
        self.assertEqual((got.returncode, got.stdout.count(b"direct left out")), (1, 0))
        self.assertIn(b"allgather: ", got.stderr)

    def test_what_runs_is_named_not_what_was_asked(self):
        words = ["allreduce", "-n", 2, "-b", "64K", "-e", "64K", "--algorithm", "direct", *FEW]
        for buffers in ("plain", "registered"):
            _, said, _ = bench(*words, "--buffers", buffers)
            for row in said["results"]:
                self.assertEqual(row["asked"], "direct")
                self.assertEqual(row["algorithm"] == "direct", buffers == "registered")

    def test_wires(self):
        for op in "allreduce", "reduce_scatter":
            for wire, name in ("f32", None), ("bf16", "bfloat16"), ("int8", "int8"):
                with self.subTest((op, wire)):
                    words = [op, "-n", 3, "-b", 4, "-e", "96K", "-f", 37, "--wire", wire, *FEW]
                    for kind in "sum", "avg":
                        code, said, err = bench(*words, "-o", kind)
                        self.assertEqual((code, err), (0, ""))
                        rows = said["results"]
                        self.assertEqual({row.get("wire") for row in rows}, {name})
                        self.assertEqual({row["wrong"] for row in rows}, {0})
        # What the choice says of it, and by every algorithm that can.
        _, said, _ = bench("allreduce", "-n", 3, "-e", "8K", "--wire", "int8", "--algorithm",
                           "all", *FEW)
        names = {row["algorithm"] for row in said["results"]}
        self.assertTrue({"flat", "two_shot", "ring", "direct", "staged"} <= names, names)
        self.assertFalse(any("recursive" in name for name in names), names)
        self.assertEqual({row["wrong"] for row in said["results"]}, {0})

    def test_wrong_values_are_found(self):
        code, said, err = bench(
            "allreduce", "-n", 2, "-b", "4K", "-e", "4K", "--in-place", 0, *FEW,
            env={"LD_PRELOAD": WRONG, "ASAN_OPTIONS": "verify_asan_link_order=0"},
        )
        self.assertIn("fault fired", err)
        self.assertEqual([row["wrong"] for row in said["results"]], [1])
        self.assertEqual(code, 1)


    def test_wrong_values_are_not_looked_for_where_asked(self):
        words = ["allreduce", "-n", 2, "-b", "4K", "-e", "4K", "--in-place", 0, *FEW]
        env = {"LD_PRELOAD": WRONG, "ASAN_OPTIONS": "verify_asan_link_order=0"}
        code, said, err = bench(*words, "-c", 0, env=env)
        self.assertIn("fault fired", err)
        self.assertEqual([row["wrong"] for row in said["results"]], [None])
        self.assertEqual(code, 0)


class Output(unittest.TestCase):
    def test_table_is_that_of_nccl_tests(self):
        got = run(BENCH, "allreduce", "-n", 2, "-b", 8, "-e", 32, *FEW)
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        lines = got.stdout.decode().splitlines()
        rows = [line.split() for line in lines if not line.startswith("#")]
        self.assertEqual([row[:5] for row in rows], [
            ["8", "2", "float32", "sum", "-1"], ["32", "8", "float32", "sum", "-1"]
        ])
        for row in rows:
            self.assertEqual(len(row), 5 + 8 + 12 + 1)
            self.assertEqual((row[8], row[12]), ("0", "0"))
        head = [line.split() for line in lines if "busbw" in line][0]
        self.assertEqual(head[1:10], "size count type redop root time algbw busbw #wrong".split())
        self.assertIn("# Out of bounds values : 0 OK", lines)
        self.assertTrue(re.search(r"^# Avg bus bandwidth +: [0-9]", "\n".join(lines), re.M))

    def test_missing_places_say_so(self):
        got = run(BENCH, "barrier", "-n", 2, *FEW)
        rows = [line.split() for line in got.stdout.decode().splitlines() if line[0] != "#"]
        self.assertEqual(len(rows), 1)
        self.assertEqual(rows[0][9:13], ["N/A"] * 4)

    def test_json_file_beside_the_table(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.json")
            words = ["-n", "2", "-e", "8", "-t", "1", "allreduce", "--json", path]
            got = run(BENCH, *words)
            self.assertIn(b"# Out of bounds values", got.stdout)
            with open(path) as file:
                self.assertEqual(json.load(file)["args"], words)

    def test_csv_has_what_json_has(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "out.csv")
            _, said, _ = bench("reduce", "-n", 2, "-e", 32, "-r", 1, "--csv", path, *FEW)
            with open(path, newline="") as file:
                rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 4)
        for row, same in zip(rows, said["results"]):
            self.assertEqual(row["in_place"], "1" if same["in_place"] else "0")
            for name in "op impl algorithm size count type redop root wrong".split():
                self.assertEqual(row[name], str(same[name]))
            for name, time in same["time_us"].items():
                self.assertEqual(float(row[f"time_us.{name}"]), time)
            self.assertEqual((row["wire"], row["rubato_over_it.ratio"]), ("", ""))
        got = run(BENCH, "barrier", "-n", 2, "--csv", "-", *FEW)
        self.assertEqual([line.split(b",")[0] for line in got.stdout.splitlines()],
                         [b"op", b"barrier"])

    def test_explain(self):
        got = run(BENCH, "allreduce", "-n", 2, "-e", 8, "--explain", *FEW)
        lines = got.stdout.decode().splitlines()
        row = [line for line in lines if line[0] != "#"][0]
        after = lines[lines.index(row) + 1]
        self.assertIn(row.split()[-1], after)
        self.assertRegex(after, r"predicted [\d.]+ us; .*else \w+ [\d.]+ us, \w+ [\d.]+ us")

    def test_explain_tells_of_nodes(self):
        got = run(BENCH, "allreduce", "-n", 2, "-e", 8, "--explain", "--transport", "tcp", *FEW)
        if b"no UCX" in got.stderr:
            self.skipTest(got.stderr.decode().strip())
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertRegex(got.stdout.decode(),
                         r"; 2 nodes, [\d.]+ us and [\d.e+]+ GB/s between them, "
                         r"measured at creation, puts by messages; else \w+ ")

    def test_explain_tells_who_copies_twice(self):
        for attach, says in ("never", True), ("auto", False):
            got = run(BENCH, "allreduce", "-n", 3, "-e", 8, "--explain", "--transport", "shm",
                      *FEW, env={"RUBATO_ATTACH": attach, "RUBATO_LOG": "info"})
            refused = b"no attaching the memory" in got.stderr  # By this machine, perhaps.
            self.assertEqual(b"; messages of 2 ranks are copied twice" in got.stdout,
                             says or refused, got.stdout)

    def test_joins_the_launchers_job(self):
        got = run(RUN, "-n", 2, BENCH, "allreduce", "-e", 8, *FEW)
        self.assertEqual(got.returncode, 0, got.stderr)
        self.assertIn(b"[0] # rubato-bench", got.stdout)
        self.assertNotIn(b"[1]", got.stdout)

    def test_one_rank(self):
        got = run(BENCH, "allgather", "-e", 8, *FEW)
        self.assertEqual(got.returncode, 0, got.stderr)


class Like(unittest.TestCase):
    """The same measurements by other benchmarks' options."""

    def test_nccl_tests(self):
        words = ["--like", "nccl-tests", "-b", 8, "-e", "1K", "-f", 8, "-d", "half", "-o", "max"]
        code, said, err = bench("allreduce", *words, "-g", 2, "-n", 3, "-w", 1, "-m", 2, "-R", 1)
        self.assertEqual((code, err, said["ranks"]), (0, "", 2))
        rows = [row for row in said["results"] if not row["in_place"]]
        self.assertEqual([row["size"] for row in rows], [8, 64, 512])
        for row in rows:
            self.assertEqual((row["type"], row["redop"], row["buffers"], row["aggregate"]),
                             ("float16", "max", "registered", 2))
        _, said, _ = bench("allgather", "--like=nccl-tests", "-t", 2, "-g", 2, "-b", 0, "-e", "2M",
                           "-n", 1, "-c", 0)
        sizes = [row["size"] for row in said["results"] if not row["in_place"]]
        self.assertEqual((said["ranks"], sizes), (4, [0, 1 << 20, 2 << 20]))
        self.assertEqual({row["wrong"] for row in said["results"]}, {None})

    def test_osu(self):
        words = ["--like", "osu", "--ranks", 2, "-x", 1, "-i", 3]
        for sizes, found in [("8:64", [8, 16, 32, 64]), ("16", [4, 8, 16]),
                             ("512K:", [1 << 19, 1 << 20])]:
            _, said, _ = bench("broadcast", *words, "-m", sizes, "-f", "-z", "-c")
            self.assertEqual([row["size"] for row in said["results"]], found)
        code, said, _ = bench("--overlap", "allreduce", *words, "-m", "4K:8K", "--buffers=plain")
        self.assertEqual((code, {row["size"] for row in said["results"]}), (0, {4096, 8192}))

    def test_each_has_a_help_of_its_own(self):
        for like, names in ("nccl-tests", "-n, --iters"), ("osu", "-m, --message-size"):
            said = run(BENCH, "--like", like, "--help").stdout.decode()
            self.assertIn(names, said)


class Usage(unittest.TestCase):
    def test_bad_options(self):
        for words, says in [
            ([], "OP is missing"),
            (["alltoallw"], "OP takes one of allreduce, "),
            (["allreduce", "reduce"], "what is 'reduce'"),
            (["allreduce", "-n", "0"], "-n takes a number"),
            (["allreduce", "-b", "8Q"], "-b takes a size"),
            (["allreduce", "-b", "-8"], "-b takes a size"),
            (["allreduce", "-b", "17179869184G"], "-b takes a size"),
            (["allreduce", "-b", "1M", "-e", "8"], "-e is less than -b"),
            (["allreduce", "-e", "18446744073709551615"], "-e takes at most"),
            (["allgatherv", "-b", "8", "-e", "9223372036854775808"], "-e takes at most"),
            (["allreduce", "-i", "8", "-f", "2"], "-i or -f"),
            (["allreduce", "-f", "1"], "-f takes a number from 2"),
            (["allreduce", "-d", "float8"],
             "-d takes one of float32, float64, int32, int64, float16, bfloat16, int8, int16, "
             "uint8, uint16, uint32, uint64, all"),
            (["allreduce", "-o", "mean"], "-o takes one of sum, max, min, avg, prod, all"),
            (["allreduce", "-t", "0"], "-t takes a number from 1"),
            (["reduce", "-n", "2", "-r", "2"], "there are 2 ranks"),
            (["allreduce", "--algorithm", "magic"], "takes one of auto, all"),
            (["allreduce", "--transport", "pigeon"],
             "--transport takes one of auto, shm, ucx, tcp, verbs"),
            (["allreduce", "--buffers", "pinned"], "--buffers takes one of plain, registered"),
            (["allreduce", "--in-place", "2"], "--in-place takes a number"),
            (["allgather", "--wire", "bf16"], "allreduce and reduce_scatter"),
            (["allreduce", "--wire", "bf16", "-d", "float64"], "-d float32"),
            (["allreduce", "--wire", "int8", "-o", "max"], "sum or avg"),
            (["allreduce", "--wire", "fp8"], "--wire takes one of f32, bf16, int8"),
            (["sendrecv", "--algorithm", "eager"], "one algorithm"),
            (["barrier", "--in-place", "1"], "no in-place form"),
            (["allreduce", "--peer", "nosuch"], "--peer"),
            (["allreduce", "--json"], "--json needs a value"),
            (["allreduce", "--json", "-", "--csv", "-"], "one standard output"),
            (["allreduce", "--json", "same", "--csv", "same"], "--json and --csv: both to same"),
            (["--overlap", "allreduce", "--json", "same", "--csv", "same"], "both to same"),
            (["allreduce", "-m", "2", "--peer", "mpich"], "one call at a time"),
            (["allreduce", "--like", "osu", "-m", "8:4"], "MAX is less than MIN"),
            (["allreduce", "--like", "osu", "-m", "8:x"], "-m takes a size"),
            (["allreduce", "--like", "imb"], "--like takes one of rubato, nccl-tests, osu"),
            (["allreduce", "--like", "nccl-tests", "-t", "4096", "-g", "2"], "at most 4096"),
        ]:
            with self.subTest(words):
                check_usage(self, BENCH, *words, says=says)

    def test_n_inside_a_job_is_refused(self):
        got = run(BENCH, "allreduce", "-n", 2, env={"RUBATO_RANK": "0"})
        self.assertEqual(got.returncode, 2)

    def test_why_results_cannot_be_written_is_said(self):
        for words in (["allreduce", "--csv"], ["partial", "--json"], ["--overlap", "allreduce",
                                                                       "--csv"]):
            with self.subTest(words):
                got = run(BENCH, *words, "/no/such/folder/x", "-n", 2)
                self.assertEqual((got.returncode, got.stdout), (2, b""))
                self.assertEqual(f"rubato-bench: {words[-1]}: cannot write /no/such/folder/x: "
                                 "No such file or directory\n", got.stderr.decode())

    def test_a_rank_that_cannot_start_claims_no_number(self):
        got = run(BENCH, "allreduce", "-n", 3, env={"RUBATO_CHUNK": "1"})
        self.assertEqual(got.returncode, 1)
        self.assertIn("rubato-bench: start: RUBATO_CHUNK", got.stderr.decode())
        self.assertNotRegex(got.stderr.decode(), r"rank \d: start")

    def test_help(self):
        self.assertIn(b"usage: rubato-bench OP", run(BENCH, "--help").stdout)


if __name__ == "__main__":
    main()
