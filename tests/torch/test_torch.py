#!/usr/bin/env python3
"""test_torch.py FOLDER [FAKE-CUDA INCLUDES] -- the backend of torch.distributed as a user meets it:
both packages are installed in a fresh environment, and used from outside the tree. RUBATO_TORCH
names a Python that has torch (docs/pytorch.md); without it this is skipped. The driver without a
device, and where cuda.h is, make a device for PyTorch (late_device.cpp)."""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/torch"
FOLDER = pathlib.Path(sys.argv.pop(1))
FAKE_CUDA = [os.path.abspath(word) for word in sys.argv[1:]]
del sys.argv[1:]
sys.path.insert(0, str(ROOT / "tests/tools"))

from programs import main  # noqa: E402
from speed import on_hosts  # noqa: E402

TORCH = os.environ.get("RUBATO_TORCH")
TIMEOUT_S = 150 # Of a job.


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def ran(script):
    """What unittest says at the end, if it has run all that the script defines."""
    return f"Ran {(HERE / script).read_text().count('    def test_')} tests"


def build(*command):
    """Part of what a user would type."""
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900,
                          cwd=FOLDER)
    if done.returncode == 77:
        skip(done.stdout.decode())
    assert done.returncode == 0, done.stdout.decode()
    return done.stdout.decode().strip()


def setUpModule():
    global python
    if not TORCH:
        skip("RUBATO_TORCH does not name a Python that has torch")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in ("wheels", "source", "environment"):
        shutil.rmtree(FOLDER / name, ignore_errors=True)
    packages = build(TORCH, "-c", "import torch, pathlib; "
                     "print(pathlib.Path(torch.__file__).parents[1])")
    wheel = build(ROOT / "tools/wheel", FOLDER / "wheels", sys.executable, "-Dwerror=true")
    build(TORCH, "-m", "venv", FOLDER / "environment")
    python = FOLDER / "environment/bin/python"
    site = pathlib.Path(build(python, "-c",
                              "import sysconfig; print(sysconfig.get_path('purelib'))"))
    (site / "torch_is_there.pth").write_text(packages + "\n")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--timeout",
           "15", "--retries", "1"]
    build(*pip, wheel, "setuptools >= 77", "wheel", "expecttest") # The last: PyTorch's own cases.
    shutil.copytree(ROOT / "python/torch", FOLDER / "source")
    build(*pip, "--no-build-isolation", "--no-deps", FOLDER / "source")
    start_forker()


def start_forker():
    global forker
    forker = subprocess.Popen([str(python), str(HERE / "forked_ranks.py")], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True, env=bare(), cwd=FOLDER)


def tearDownModule():
    forker.stdin.close()
    forker.stdout.close()
    forker.wait(TIMEOUT_S)


def bare(**more):
    return {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": os.environ.get("HOME", "/"),
            "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **more}


class Torch(unittest.TestCase):
    def job(self, count, *command, patience=TIMEOUT_S, awaited=None, **more):
        """Ranks without a launcher, who would end the others: what each says, and how it ends.
        Those not awaited are killed at the end."""
        with tempfile.TemporaryDirectory() as folder:
            job = {"ranks": count, "command": list(map(str, command)), "folder": folder,
                   "environment": bare(**more), "patience": patience,
                   "awaited": list(range(count) if awaited is None else awaited)}
            forker.stdin.write(json.dumps(job) + "\n")
            forker.stdin.flush()
            codes, hung = json.loads(forker.stdout.readline())
            said = [pathlib.Path(folder, str(rank)).read_text() for rank in range(count)]
        self.assertEqual(hung, [], said)
        return said, codes

    def passes(self, got):
        said, codes = got
        self.assertEqual(codes, [0] * len(codes), "\n".join(said))
        return said

    def test_collectives(self):
        for count in (1, 2, 3, 4):
            with self.subTest(count):
                for words in self.passes(self.job(count, HERE / "ranks_collectives.py")):
                    self.assertIn(ran("ranks_collectives.py"), words)
                    self.assertNotIn("skipped", words)

    @unittest.skipIf(not FAKE_CUDA, "the build has no CUDA, so no driver without a device")
    def test_devices(self):
        driver, includes = FAKE_CUDA
        device = str(FOLDER / "late_device.so")
        build(python, "-c", """import subprocess, sys
from torch.utils.cpp_extension import include_paths, library_paths
source, output, driver, headers = sys.argv[1:]
words = [w for path in [*include_paths(), headers] for w in ("-isystem", path)]
for path in library_paths():
    words += ["-L" + path]
raise SystemExit(subprocess.call(
    ["g++", "-std=c++20", "-O0", "-Wall", "-Wextra", "-Wno-unused-parameter", "-shared", "-fPIC",
     *words, source, "-o", output, "-ltorch_cpu", "-lc10", driver,
     "-Wl,-rpath," + driver.rpartition("/")[0]]))""",
              HERE / "late_device.cpp", device, driver, includes)
        build("env", "CFLAGS=-DRUBATO_TORCH_CUDA=c10::DeviceType::PrivateUse1", python, "-c",
              "import os, runpy, sys; os.chdir(sys.argv[1]); sys.argv[:2] = ['setup.py']; "
              "runpy.run_path('setup.py')", FOLDER / "source", "build_ext", "--force",
              "--build-lib", FOLDER / "of_cuda")
        of_cuda, = (FOLDER / "of_cuda/rubato_torch").glob("_backend*.so")
        for more in ({}, {"BACKEND_OF_CUDA": str(of_cuda)}):
            for count in (1, 2, 3):
                with self.subTest(count, **more):
                    for words in self.passes(self.job(count, HERE / "ranks_devices.py",
                                                      LATE_DEVICE=device, **more)):
                        self.assertIn(ran("ranks_devices.py"), words)
                        self.assertNotIn("skipped", words)
            for words in self.passes(self.job(4, HERE / "ranks_training.py", LATE_DEVICE=device,
                                              DEVICE="late", BACKEND="cpu:rubato,late:rubato",
                                              **more)):
                self.assertIn(ran("ranks_training.py"), words)

    def test_cuda(self):
        """All ranks share a device."""
        if build(python, "-c", "import torch; print(torch.cuda.is_available())") != "True":
            self.skipTest("PyTorch finds no CUDA device")
        for script, counts in (("ranks_cuda.py", (1, 2, 4)), ("ranks_devices.py", (1, 2, 4)),
                               ("ranks_collectives.py", (2, 4)), ("ranks_training.py", (4,))):
            for count in counts:
                with self.subTest(script, count=count):
                    for words in self.passes(self.job(count, HERE / script, DEVICE="cuda")):
                        self.assertIn(ran(script), words)
        for how, least in (("killed", 0.0), ("stopped", 3.5), ("late", 3.5)):
            with self.subTest(how):
                self.told(how, self.ALL, "DistBackendError: rubato: .*rank 1", least,
                          DEVICE="cuda")

    def test_training_is_that_of_gloo(self):
        for count in (1, 2, 4):
            with self.subTest(count), tempfile.TemporaryDirectory() as folder:
                said = {}
                for backend in ("rubato", "gloo"):
                    got = self.passes(self.job(count, HERE / "train.py", backend,
                                               f"{folder}/{backend}"))
                    said[backend] = [words[words.index("loss"):].split()[2] for words in got]
                    self.assertEqual(len(set(said[backend])), 1) # The same bits on all ranks.
                if count <= 2: # There is one order of two summands only.
                    self.assertEqual(said["rubato"], said["gloo"])
                build(python, "-c", "import sys, torch; torch.testing.assert_close(*map(torch.load,"
                      " sys.argv[1:]), rtol=1e-3, atol=1e-5)", f"{folder}/rubato",
                      f"{folder}/gloo")

    def test_the_equations_are_those_of_rubato_train(self):
        self.passes(self.job(4, HERE / "ranks_like_trainer.py"))

    def test_training_where_ranks_differ(self):
        for backend in ("rubato", "gloo"):
            with self.subTest(backend):
                for words in self.passes(self.job(4, HERE / "ranks_training.py",
                                                  BACKEND=backend)):
                    self.assertIn(ran("ranks_training.py"), words)

    def test_training_of_replicas_that_are_sharded(self):
        for words in self.passes(self.job(4, HERE / "ranks_sharded.py")):
            self.assertIn(ran("ranks_sharded.py"), words)

    def test_programs_that_measure(self):
        said = self.passes(self.job(2, HERE / "speed.py", "--quick"))[0]
        self.assertEqual(re.findall(r"^(\S+ \d+).* rubato \d.* gloo \d", said, re.M),
                         ["allreduce 8", "allreduce 1048576", "allreduce 16777216", "DDP 1000"])
        if pathlib.Path("/usr/share/datasets/fashion-mnist").exists():
            said = self.passes(self.job(4, HERE / "late_rank.py", "--steps", 3))[0]
            self.assertEqual(len(re.findall(r"times +\d+\.\d %$", said, re.M)), 5)

    def between_hosts(self, ranks, *script):
        words, more = on_hosts(2, ranks, "1Gbit", python, *script)
        done = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=TIMEOUT_S, cwd=FOLDER,
                              env={**bare(**more), "PATH": os.environ["PATH"]})
        said = done.stdout.decode()
        if done.returncode == 77:
            self.skipTest(said)
        self.assertEqual(done.returncode, 0, said)
        return said

    def test_hosts(self):
        """Two, whose only way to each other is a network."""
        for ranks in (2, 4):
            with self.subTest(ranks):
                said = self.between_hosts(ranks, HERE / "ranks_collectives.py")
                self.assertEqual(said.count(ran("ranks_collectives.py")), ranks, said)
        with tempfile.TemporaryDirectory() as folder:
            ends = [sorted(re.findall(r"rank \d loss \S+ \S+$", self.between_hosts(
                2, HERE / "train.py", backend, f"{folder}/{backend}"), re.M))
                for backend in ("rubato", "gloo")]
        self.assertEqual(len(ends[0]), 2, ends)
        self.assertEqual(*ends) # Losses and parameters, to the bit.
        said = self.between_hosts(2, HERE / "speed.py", "--quick")
        self.assertEqual(re.findall(r"^\[0\] (\S+ \d+).* rubato \S+ .* gloo ", said, re.M),
                         ["allreduce 8", "allreduce 1048576", "allreduce 16777216", "DDP 1000"])

    def test_torchrun(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [str(python), "-m", "torch.distributed.run", "--standalone",
                 "--nproc-per-node", "2", str(HERE / "train.py"), "rubato", f"{folder}/model"],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                cwd=folder, env=bare(), timeout=TIMEOUT_S)
        self.assertEqual(done.returncode, 0, done.stdout.decode())
        self.assertEqual(done.stdout.decode().count("loss"), 2)

    def test_cases_of_pytorch(self):
        done = subprocess.run([str(python), str(HERE / "upstream.py"), "--ranks", "4"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, env=bare(), timeout=900)
        said = done.stdout.decode()
        self.assertEqual(done.returncode, 0, said)
        self.assertGreater(int(re.search(r"(\d+) passed, ", said)[1]), 80, said)

    def test_the_guide(self):
        """Its script, and the loop again with an exchange, as it says; and that of HSDP."""
        blocks = re.findall(r"^```python\n(.*?)^```",
                            (ROOT / "docs/guide-pytorch.md").read_text(), re.M | re.S)
        script, late, sharded = blocks
        loop = script[script.index("for step"):script.index("print(")]
        begin, end = late.split("# ... the same loop ...\n")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "train.py")
            both = script.replace("dist.destroy", begin + loop + end + "dist.destroy")
            for text in (both, sharded):
                path.write_text(text)
                for words in self.passes(self.job(4, path)):
                    self.assertRegex(words, r"rank \d of 4: loss 0\.0\d+")

    def test_the_end_without_destroying(self):
        with tempfile.TemporaryDirectory() as folder:
            self.passes(self.job(2, HERE / "train.py", "rubato", f"{folder}/model", LEAVE="open"))

    def need(self, package):
        """Installs it beside the others."""
        done = subprocess.run([str(python), "-m", "pip", "--disable-pip-version-check", "install",
                               "--quiet", "--timeout", "15", "--retries", "1", package],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=300, cwd=FOLDER)
        if done.returncode != 0:
            self.skipTest(f"{package} cannot be installed: {done.stdout.decode()[-200:]}")

    def test_ray_train(self):
        """The example, in a network and among processes of its own: Ray starts daemons."""
        alone = ["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork",
                 "--kill-child", "--mount-proc"]
        if subprocess.run([*alone, "true"], stdin=subprocess.DEVNULL).returncode:
            self.skipTest("no namespaces can be made")
        self.need("ray[train]==2.60.0")
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            done = subprocess.run(
                [*alone, "sh", "-c", 'ip link set lo up && exec "$@"', "sh", str(python),
                 str(ROOT / "examples/ray_train.py"), "2"], stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=folder, timeout=TIMEOUT_S,
                env={**bare(RAY_TMPDIR=folder, RAY_USAGE_STATS_ENABLED="0"), "HOME": folder,
                     "PATH": f"{python.parent}:/usr/sbin:/usr/bin:/sbin:/bin"})
        said = done.stdout.decode()
        self.assertEqual(done.returncode, 0, said)
        self.assertEqual(set(re.findall(r"rank (\d) of 2 by rubato: loss 0\.0", said)),
                         {"0", "1"}, said)

    def test_torchft(self):
        """A replica is killed, and another one joins."""
        self.need("torchft-nightly==2026.10.26")
        said, codes = self.job(4, HERE / "ranks_torchft.py", "rubato", awaited=(0, 1, 3))
        self.assertEqual(codes, [0, 0, -signal.SIGKILL, 0], "\n".join(said))
        for rank in (0, 1):
            self.assertRegex(said[rank], r"dropped: rubato: allreduce: .*rank 2 is lost")
            self.assertRegex(said[rank], r"sizes .* to \[3, 3, 3, 3\]")
        ends = [re.search(r"step (\d+) .* parameters (\S+)$", said[rank], re.M).groups()
                for rank in (0, 1, 3)]
        self.assertEqual(len(set(ends)), 1, ends) # The same step, the same bits.

    def told(self, how, names, words, least=0.0, most=30.0, **more):
        """What ranks 0 and 2 were told by each of `names`, in time."""
        said, codes = self.job(3, HERE / "rank_fails.py", how, awaited=(0, 2), **more)
        for rank in (0, 2):
            self.assertEqual(codes[rank], 0, said)
            for name in names:
                found = re.findall(rf"^([\d.]+) {name} (.*)$", said[rank], re.M)
                self.assertTrue(found, (name, said))
                for after, text in found:
                    self.assertRegex(text, words, said)
                    self.assertLessEqual(least, float(after), said)
                    self.assertLessEqual(float(after), most, said)
        return said, codes

    ALL = ("future", "work", "receive", "later call")

    def test_a_rank_is_killed(self):
        _, codes = self.told("killed", self.ALL, "DistBackendError: rubato: .*rank 1 is lost")
        self.assertEqual(codes[1], -signal.SIGKILL)

    def test_a_rank_raises(self):
        said, _ = self.told("raises", self.ALL, "DistBackendError: rubato: .*rank 1")
        self.assertIn("nobody catches this", said[1])

    def test_a_rank_aborts(self):
        self.told("aborts", self.ALL, "DistBackendError: rubato: .*rank 1")

    def test_a_rank_is_stopped(self):
        self.told("stopped", self.ALL, "DistBackendError: rubato: .*rank 1", 3.5)

    def test_a_rank_is_late(self):
        self.told("late", self.ALL, "DistBackendError: rubato: .*rank 1", 3.5)

    def test_a_rank_does_not_come(self):
        self.told("absent", ("init",), "DistBackendError: rubato: start: .*rank 1", 3.5)

    def test_rank_0_fails_before_the_others_can_know_of_it(self):
        said, _ = self.told("refused", ("init",), "rubato: start: .*RUBATO_CHUNK")
        self.assertRegex(said[2], "init DistBackendError: rubato: start: rank 0 has failed: ")

    def test_a_rank_fails_before_it_meets_the_others(self):
        for how, why in (("setting", "RUBATO_CHUNK"), ("built", "rubato_torch was built for")):
            with self.subTest(how):
                said, _ = self.told(how, ("init",), "DistBackendError: rubato: start: "
                                    f"rank 1 has failed: {why}")
                self.assertRegex(said[1], f"init (ValueError|ImportError): .*{why}")

    def test_rank_0_ends_with_the_store(self):
        said, codes = self.job(3, HERE / "rank_fails.py", "gone")
        self.assertEqual(codes, [-signal.SIGKILL, 0, 0], said)
        for rank in (1, 2):
            self.assertRegex(said[rank], f"init DistBackendError: rubato: start: rank {rank} has "
                             "lost PyTorch's store, which ends with rank 0 or the launcher: ")

    def test_a_rank_does_not_come_to_the_store(self):
        """There rank 0 is told by PyTorch, whose store counts; who finds nothing of rank 0 names
        the rank that both wait for."""
        said, codes = self.job(3, HERE / "rank_fails.py", "never")
        self.assertEqual(codes, [0, 0, 0], said)
        self.assertRegex(said[0], "init DistStoreError: .*2/3 clients joined")
        self.assertRegex(said[2], r"(?m)^4\.\d init DistBackendError: rubato: start: .*within 4 s: "
                         "rank 1 has not come either, and rank 0 may be waiting for it: ")

    def test_a_rank_calls_another_thing(self):
        self.told("mismatch", ("future", "work"), "DistBackendError: rubato: .*broadcast")

    def test_pytorch_looks_for_mismatches(self):
        """TORCH_DISTRIBUTED_DEBUG=DETAIL: the group goes on."""
        said, _ = self.told("detail", ("call",), "RuntimeError: Detected mismatch between "
                            "collectives on ranks. .*(ALLREDUCE|BROADCAST)")
        for rank in (0, 2):
            self.assertRegex(said[rank], "next was told nothing\n.*destroy was told nothing")

    def test_a_call_and_a_wait_have_their_own_timeout(self):
        self.told("call", ("wait",), "DistBackendError: .*not done after 0.5 s", 0.5)
        self.told("call", ("work",), "DistBackendError: rubato: .*rank 1", 1.9)

    def test_a_monitored_barrier(self):
        said, _ = self.told("monitored", ("monitored",), "rank", 0.9)
        self.assertIn("ranks 1 did not come within 1 s", said[0])
        self.assertIn("rank 0 says that rank 1 did not come", said[2])

    def test_the_end_of_a_communicator(self):
        for how, code in (("killed", -signal.SIGKILL), ("raises", 1)):
            with self.subTest(how):
                said, codes = self.job(2, HERE / "rank_ends.py", how, patience=60)
                self.assertEqual(codes, [0, code], said)
                self.assertRegex(said[0], "rubato_torch: at the end of rank 0: .*rank 1")

    def test_another_torch_is_refused(self):
        done = subprocess.run(
            [str(python), "-c", "import rubato_torch._built as b; b.TORCH = '1.0'\n"
             "import rubato_torch; rubato_torch._load()"], stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=bare(), timeout=TIMEOUT_S,
            cwd="/")
        self.assertRegex(done.stdout.decode(), "built for torch 1.0, and this is")


if __name__ == "__main__":
    main()
