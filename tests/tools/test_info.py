#!/usr/bin/env python3
"""test_info.py RUBATO-INFO WRONG-RING RUBATO-RUN -- the sections of rubato-info, as text and as
JSON. WRONG-RING is one that has an allreduce ring with a fault in it."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from programs import check_usage, main, run

INFO, WRONG_RING, RUN = sys.argv.pop(1), sys.argv.pop(1), sys.argv.pop(1)

in_one_thread = unittest.skipIf(os.environ.get("TEST_LENGTH") == "threads", "it has one thread")


def info(*words, env=None):
    got = run(INFO, *words, "--json", "-", env=env)
    return got.returncode, json.loads(got.stdout), got.stderr.decode()


class Sections(unittest.TestCase):
    def test_version_and_transports(self):
        got = run(INFO)
        self.assertEqual((got.returncode, got.stdout.split()[0]), (0, b"rubato"))
        _, said, _ = info()
        self.assertEqual(set(said), {"version", "transports", "reductions", "job"})
        self.assertIn(f"  by the {said['reductions']} kernels".encode(), got.stdout.splitlines())
        if os.uname().machine == "aarch64":
            self.assertEqual(said["reductions"], "neon")
        elif os.uname().machine == "x86_64":
            self.assertIn(said["reductions"], ("sse2", "avx2", "avx512"))
        self.assertEqual([one["transport"] for one in said["transports"]],
                         ["shm", "ucx", "tcp", "verbs"])
        for one in said["transports"]:  # Either it works, or it says why not.
            self.assertEqual(one["works"], one["text"] == "", one)
        self.assertTrue(said["transports"][0]["works"], said)

    @in_one_thread
    def test_few_descriptors_are_no_end(self):
        for limit in (*range(4, 18), 20, 28, 32, 40):
            got = subprocess.run(["sh", "-c", f"ulimit -c 0; ulimit -n {limit}; exec \"$0\"", INFO],
                                 capture_output=True, timeout=60, check=False)
            said = got.stdout.decode()
            self.assertEqual(got.returncode, 0, (limit, got))
            for transport in ("shm", "ucx", "tcp", "verbs"):
                self.assertRegex(said, rf"(?m)^  {transport} .*\S", limit)
            if limit < 16 and "has no UCX" not in said:
                self.assertRegex(said, r"(?m)^  ucx .*the limit \(ulimit -n\) is ", limit)

    def test_devices(self):
        _, said, _ = info("--devices")
        names = {one["interface"] for one in said["devices"]["interfaces"]}
        self.assertEqual(names - set(os.listdir("/sys/class/net")), set())
        self.assertIn("lo", names)

    def test_topology_places_ranks_round(self):
        cores = sorted(os.sched_getaffinity(0))
        _, said, _ = info("--topology", "-n", 5)
        topology = said["topology"]
        self.assertGreaterEqual(topology["hardware_threads"], topology["cores"])
        placed = [one["cpu"] for one in topology["placement"]]
        self.assertEqual(placed, [cores[rank % len(cores)] for rank in range(5)])

    def test_topology_gives_each_rank_a_core_before_any_shares_one(self):
        # 2 domains, 2 cores each, 2 threads each: processors 0 and 1 are one core.
        machine = self.machine([(0, 0, 0), (0, 0, 0), (2, 0, 0), (2, 0, 0),
                                (4, 1, 4), (4, 1, 4), (6, 1, 4), (6, 1, 4)])
        _, said, _ = info("--topology", "-n", 6, "--system", machine)
        placed = [(one["cpu"], one["core"], one["numa_node"], one["shared"])
                  for one in said["topology"]["placement"]]
        self.assertEqual(placed, [(0, 0, 0, False), (2, 1, 0, False), (4, 2, 1, False),
                                  (6, 3, 1, False), (1, 0, 0, True), (3, 1, 0, True)])

    def test_topology_of_a_machine_that_counts_first_threads_first(self):
        # 2 packages, each a domain; processors n and n + 4 are one core; odd ones in package 1.
        machine = self.machine([(n % 4, n % 2, n % 2) for n in range(8)])
        _, said, _ = info("--topology", "-n", 5, "--system", machine)
        topology = said["topology"]
        self.assertEqual([one["cpu"] for one in topology["placement"]], [0, 2, 1, 3, 4])
        self.assertEqual([one["numa_node"] for one in topology["placement"]], [0, 0, 1, 1, 0])
        self.assertEqual([topology[name] for name in
                          ("packages", "numa_nodes", "cores", "hardware_threads")], [2, 2, 4, 8])
        self.assertEqual(topology["caches"], [
            {"level": "L1", "count": 4, "bytes": 48 << 10, "threads": 2},
            {"level": "L3", "count": 2, "bytes": 32 << 20, "threads": 4}])

    def test_topology_in_a_job(self):
        copies = lambda rank: ", plain buffers copied (once|twice)" if rank > 0 else ""
        got = run(RUN, "-n", 3, INFO, "--topology")
        lines = got.stdout.decode().splitlines()
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        self.assertEqual({line[:3] for line in lines}, {"[0]"})  # One rank speaks for all.
        at = lines.index("[0] ranks of this job")
        for rank, line in enumerate(lines[at + 1:at + 4]):
            self.assertRegex(line, rf"rank {rank} +node 0, host 0, card 0, NUMA domain (\d+|-), "
                                   f"by shm from rank 0{copies(rank)}, on processor \\d+$")
        if os.sched_getaffinity(0) == {0, 1}:  # Of three one is where another is.
            self.assertRegex(lines[at + 4], r"   [12] of them where another one was: they share")
        self.assertRegex(lines[-1], r"^\[0\]   within nodes .*copies .* GB/s \(measured\)$")

    def test_memory_that_is_not_measured(self):
        got = run(RUN, "-n", 2, INFO, "--topology", "--json", "-", env={"RUBATO_MEASURE": "0"})
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        said = json.loads(re.sub(r"(?m)^\[0\] ", "", got.stdout.decode()))
        self.assertEqual(said["ranks"]["memory"],
                         {"latency_us": 0, "bandwidth": 0, "source": "built in"})

    def test_topology_tells_who_copies_twice(self):
        got = run(RUN, "-n", 3, INFO, "--topology", "--json", "-", env={"RUBATO_ATTACH": "never"})
        self.assertEqual((got.returncode, got.stderr), (0, b""))
        said = json.loads(re.sub(r"(?m)^\[0\] ", "", got.stdout.decode()))
        self.assertEqual([rank["copies"] for rank in said["ranks"]["ranks"]], [0, 2, 2])

    def test_topology_in_a_job_that_lacks_a_rank(self):
        got = run(INFO, "--topology", env={"RUBATO_RANK": "0", "RUBATO_SIZE": "2"})
        self.assertEqual(got.returncode, 1)
        self.assertIn(b"RUBATO_ROOT", got.stderr)

    def test_topology_of_no_machine(self):
        got = run(INFO, "--topology", "--system", "/nowhere")
        self.assertEqual((got.returncode, got.stderr),
                         (1, b"rubato-info: /nowhere tells of no processors\n"))

    def machine(self, processors):
        """/sys/devices/system of a machine: core, NUMA node and package of each processor, a core
        and a package by its lowest processor. Caches: L1 a core, L3 a package."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)

        def write(path, text):
            file = pathlib.Path(folder.name, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

        def alike(field, value):
            return ",".join(str(n) for n, one in enumerate(processors) if one[field] == value)

        write("cpu/online", f"0-{len(processors) - 1}")
        nodes = sorted({node for _, node, _ in processors})
        write("node/online", ",".join(map(str, nodes)))
        for node in nodes:
            write(f"node/node{node}/cpulist", alike(1, node))
        for n, (core, _, package) in enumerate(processors):
            write(f"cpu/cpu{n}/topology/thread_siblings_list", alike(0, core))
            write(f"cpu/cpu{n}/topology/core_siblings_list", alike(2, package))
            for index, (level, kind, size, sharers) in enumerate((
                    (1, "Data", "48K", alike(0, core)),
                    (1, "Instruction", "32K", alike(0, core)),
                    (3, "Unified", "32768K", alike(2, package)))):
                cache = f"cpu/cpu{n}/cache/index{index}"
                write(f"{cache}/level", level)
                write(f"{cache}/type", kind)
                write(f"{cache}/size", size)
                write(f"{cache}/shared_cpu_list", sharers)
        return folder.name

    def test_config_says_where_values_come_from(self):
        code, said, _ = info("--config", env={"RUBATO_TIMEOUT": "7s"})
        rows = {row["variable"]: row for row in said["config"]}
        self.assertEqual(code, 0)
        self.assertEqual(rows["RUBATO_TIMEOUT"]["source"], "environment")
        self.assertEqual(rows["RUBATO_CHUNK"]["source"], "default")
        for row in rows.values():
            self.assertNotEqual(row["help"], "")

    def test_config_with_a_bad_value_fails(self):
        got = run(INFO, "--config", env={"RUBATO_TIMEOUT": "soon"})
        self.assertEqual(got.returncode, 1)
        self.assertIn(b"RUBATO_TIMEOUT", got.stderr)

    def checks(self, env=None, failed=()):
        code, said, _ = info("--doctor", env=env)
        checks = {one["check"]: one for one in said["doctor"]}
        failures = {name for name, one in checks.items() if one["result"] == "FAIL"}
        self.assertEqual((code, failures), (1 if failed else 0, set(failed)), said["doctor"])
        return checks

    def test_doctor(self):
        checks = self.checks()
        for name in ("memfd", "locked memory", "open files", "address space", "threads", "cores",
                     "processor time", "loopback", "shm", "libibverbs", "job"):
            self.assertIn(checks[name]["result"], ("ok", "warn"))
        self.assertEqual(checks["job"]["result"], "ok")

    def test_doctor_tells_limits(self):
        limits = "ulimit -v 4194304; ulimit -n 200; exec \"$0\" --doctor"
        got = subprocess.run(["sh", "-c", limits, INFO], capture_output=True, timeout=60,
                             check=False)
        if b"Sanitizer" in got.stderr:
            self.skipTest("a sanitizer's own memory is beyond such a limit")
        said = got.stdout.decode()
        self.assertRegex(said, r"warn address space +limit 4 GiB: ")
        self.assertRegex(said, r"warn open files +limit 200: ")

    def test_doctor_counts_locked_memory_by_ranks(self):
        for ranks, needed in ((2, 65600), (1001, 129536)):
            words = f"ulimit -l 1000; exec \"$0\" --doctor -n {ranks}"
            got = subprocess.run(["sh", "-c", words, INFO], capture_output=True, timeout=60,
                                 check=False)
            self.assertRegex(got.stdout.decode(),
                             rf"warn locked memory +limit 1000 KiB: little for RDMA with {ranks} "
                             rf"ranks; ulimit -l {needed} or more")

    def test_doctor_asks_cuda_devices(self):
        fake = pathlib.Path(INFO).parents[1] / "tests/cuda/fake"
        _, said, _ = info("--doctor", env={"LD_LIBRARY_PATH": ""})
        lines = [one["text"] for one in said["doctor"] if one["check"] == "CUDA"]
        self.assertTrue(lines)
        if not (fake / "libcuda.so.1").exists():
            self.skipTest("a build without CUDA has no driver to ask")
        for given in ({}, {"RUBATO_CUDA": "2"}):
            _, said, _ = info("--doctor", env={"LD_LIBRARY_PATH": str(fake), **given})
            lines = [one["text"] for one in said["doctor"] if one["check"] == "CUDA"]
            self.assertEqual(lines, [f"device {number}, fake device, compute capability 9.0, RDMA "
                                     "by dma-buf" for number in range(4)])

    def test_doctor_finds_half_a_job(self):
        checks = self.checks({"RUBATO_RANK": "0"}, failed=["job"])
        self.assertIn("1 of RUBATO_RANK", checks["job"]["text"])

    def test_doctor_finds_an_open_secret(self):
        with tempfile.NamedTemporaryFile() as secret:
            os.chmod(secret.name, 0o644)
            checks = self.checks({"RUBATO_SECRET_FILE": secret.name}, failed=["secret"])
            self.assertIn("chmod 600", checks["secret"]["text"])
            os.chmod(secret.name, 0o600)
            checks = self.checks({"RUBATO_SECRET_FILE": secret.name})
            self.assertEqual(checks["secret"]["result"], "ok")

    def test_doctor_fails_where_ranks_cannot_start(self):
        checks = self.checks({"RUBATO_TIMEOUT": "soon"}, failed=["settings", "shm"])
        self.assertIn("RUBATO_TIMEOUT", checks["settings"]["text"])
        got = run(INFO, "--doctor", env={"RUBATO_TIMEOUT": "soon"})
        self.assertEqual(got.returncode, 1)
        self.assertRegex(got.stdout.decode(), r"\n  FAIL settings  .*RUBATO_TIMEOUT")

    def test_advice_is_no_failure(self):
        # One processor of several: progress and computation take turns there.
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("one processor")
        got = subprocess.run([INFO, "--doctor"], capture_output=True, text=True,
                             preexec_fn=lambda: os.sched_setaffinity(0, {min(
                                 os.sched_getaffinity(0))}))
        self.assertEqual(got.returncode, 0, got.stdout)
        self.assertRegex(got.stdout, r"\n  warn cores  .*bound to 1")

    def test_text_has_every_section(self):
        got = run(INFO, "--devices", "--topology", "--config", "--doctor")
        for section in (b"transports", b"network interfaces", b"topology", b"settings", b"doctor"):
            self.assertIn(section + b"\n", got.stdout)


@in_one_thread
class Files(unittest.TestCase):
    def test_json_is_replaced_whole(self):
        with tempfile.TemporaryDirectory() as folder:
            path, link = os.path.join(folder, "out.json"), os.path.join(folder, "link")
            with open(path, "w") as file:
                file.write("x" * 100000)
            before = os.stat(path).st_ino
            self.assertEqual(run(INFO, "--json", path).returncode, 0)
            self.assertNotEqual(os.stat(path).st_ino, before)
            os.symlink(path, link)
            self.assertEqual(run(INFO, f"--json={link}").returncode, 0)
            self.assertTrue(os.path.islink(link))
            with open(path) as file:
                self.assertIn("transports", json.load(file))
            self.assertEqual(sorted(os.listdir(folder)), ["link", "out.json"])

    def test_a_full_device_is_an_error(self):
        got = run(INFO, "--json", "/dev/full")
        self.assertEqual(got.returncode, 1)
        self.assertIn(b"could not be written", got.stderr)

    def test_foreign_bytes_do_not_end_it(self):
        got = run(INFO, "--config", "--json", "-", env={"RUBATO_INTERFACE": "\udcff"})
        rows = {row["variable"]: row for row in json.loads(got.stdout)["config"]}
        self.assertIsNone(rows["RUBATO_INTERFACE"]["value"])


@in_one_thread
class Usage(unittest.TestCase):
    def test_bad_options(self):
        for words, says in [
            (["--nonsense"], "--nonsense"),
            (["devices"], "what is 'devices'"),
            (["-n", "x"], "-n takes a number"),
            (["--json", "/no/such/folder/x"],
             "--json: cannot write /no/such/folder/x: No such file or directory"),
            (["--json", "/"], "--json: cannot write /: Is a directory"),
            (["--system", "/sys/devices/system"], "--topology"),
            (["--json="], "--json takes a text"),
            (["--devices=yes"], "--devices"),
        ]:
            with self.subTest(words):
                check_usage(self, INFO, *words, says=says)

    def test_help(self):
        self.assertIn(b"usage: rubato-info", run(INFO, "--help").stdout)


@in_one_thread
class Proofs(unittest.TestCase):
    def proofs(self, *words):
        code, said, _ = info("--prove", *words)
        return code, {one["algorithm"]: one for one in said["proofs"]["algorithms"]}

    def test_one_algorithm(self):
        got = run(INFO, "--prove", "allreduce", "ring", "-n", "5")
        text = got.stdout.decode()
        self.assertEqual(got.returncode, 0, text)
        self.assertIn("\nproofs of allreduce on 5 ranks\n  ring ", text)
        self.assertIn("It ends, even if every send waits", " ".join(text.split()))
        self.assertEqual([line for line in text.splitlines() if len(line) > 104], [])
        self.assertNotIn("flat", text)

    def test_all_of_an_operation(self):
        for words in ([], ["all"]):
            code, proofs = self.proofs("reduce", *words, "-n", "4")
            algorithms = {"flat", "binomial", "chain", "scatter_gather", "direct", "hierarchical",
                          "hierarchical_staged"}
            self.assertEqual((code, set(proofs)), (0, algorithms))
            for name, one in proofs.items():
                self.assertEqual((one["proved"], one["status"]), (True, "ok"))
                self.assertIn(f"reduce {name} is proved on 4 ranks, 4 roots", one["text"])
        _, proofs = self.proofs("reduce", "chain", "-n", "4", "--root", "3", "--count", "1000")
        self.assertIn("1 root: 4 cases", proofs["chain"]["text"])

    def test_on_nodes(self):
        code, proofs = self.proofs("allreduce", "-n", "5", "--nodes", "2,1")
        self.assertEqual(code, 0)
        for name, one in proofs.items():
            if name in ("direct", "staged"):
                self.assertEqual((one["proved"], one["status"]), (False, "argument"))
                self.assertIn("for one node", one["text"])
            else:
                self.assertIn(f"{name} is proved on 5 ranks on 3 nodes", one["text"])
        code, _ = self.proofs("allreduce", "direct", "-n", "5", "--nodes", "2")
        self.assertEqual(code, 1)

    def test_every_operation_has_proofs(self):
        names = run(INFO, "--help").stdout.decode().split("says what was shown:")[1]
        names = names.split("--nodes")[0].replace(",", " ").split()
        self.assertGreaterEqual(len(names), 12)
        for name in names:
            self.assertEqual(self.proofs(name, "-n", "2")[0], 0)

    def test_what_takes_too_long_is_not_known(self):
        code, proofs = self.proofs("allreduce", "ring", "-n", "64", "--timeout", "1ms")
        self.assertEqual((code, proofs["ring"]["status"]), (1, "timeout"))
        self.assertIn("the time is over", proofs["ring"]["text"])

    def test_a_wrong_algorithm_is_named(self):
        got = run(WRONG_RING, "--prove", "allreduce", "-n", "4")
        text = got.stdout.decode()
        self.assertEqual(got.returncode, 1, text)
        self.assertRegex(" ".join(text.split()),
                         r"ring WRONG allreduce ring, 4 ranks .*rank \d step \d+ .*unordered")
        self.assertRegex(text, r"(?m)^  staged +proved$")

    def test_bad_options(self):
        for words, says in (
                (["--prove", "allreduce", "ring"], "of how many ranks? -n N"),
                (["--prove", "allreduce", "bruck", "-n", "2"], "not 'bruck'"),
                (["--prove", "sendrecv", "-n", "2"], "--prove takes one of barrier, "),
                (["--prove", "barrier", "-n", "257"], "--prove takes 1 to 256 ranks, not 257"),
                (["--prove", "reduce", "-n", "3", "--root", "3"], "--root: 3 of 3 ranks"),
                (["--prove", "reduce", "chain", "flat", "-n", "3"], "what is 'flat'?"),
                (["ring"], "what is 'ring'?"),
                (["--prove", "barrier", "-n", "4", "--nodes", "2,0"], "--nodes takes"),
                (["--nodes", "2"], "work with --prove only"),
                (["--root", "1"], "work with --prove only")):
            check_usage(self, INFO, *words, says=says)


if __name__ == "__main__":
    main()
