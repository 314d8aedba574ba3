#!/usr/bin/env python3
"""test_launchers.py RUBATO-INFO RUBATO-BENCH -- jobs started by variables that are not Rubato's.

Stand-ins set what torchrun and others set; where Open MPI's or MPICH's mpirun is installed, that
one starts the job.
"""

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import unittest

from programs import DEADLINE_S, main

INFO, BENCH = sys.argv.pop(1), sys.argv.pop(1)
LAUNCHERS = ("RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC", "OMPI_", "PMI", "SLURM_",
             "MPI_", "RUBATO_")
BENCH_WORDS = ("allreduce", "-b", "8", "-e", "4K", "-f", "8", "-t", "3")


def clean(**more):
    """This environment without anybody's launcher, and with these variables."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(LAUNCHERS)}
    return {**kept, "RUBATO_TIMEOUT": "30s", **more}


def explain(**variables):
    got = subprocess.run([INFO], env=clean(**variables), capture_output=True, text=True,
                         timeout=DEADLINE_S, check=True)
    return got.stdout.splitlines()[-1].strip()


def torchrun(rank, size, port, run_id="none", local_size=None, address="127.0.0.1"):
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": address,
            "LOCAL_WORLD_SIZE": str(local_size or size), "MASTER_PORT": str(port),
            "TORCHELASTIC_RUN_ID": run_id}


def silent(port=0):
    """A server that accepts and says nothing, as torchrun's store does to us."""
    store = socket.socket()
    store.bind(("127.0.0.1", port))
    store.listen(64)
    return store


def quiet_ports(count):
    """`count` sockets at neighbouring ports."""
    for _ in range(100):
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(silent())
            port = first.getsockname()[1]
            if port > 65000:
                continue
            try:
                for i in range(1, count):
                    stack.enter_context(silent(port + i))
            except OSError:
                continue
            return port, stack.pop_all()
    raise AssertionError("no free ports side by side")


def start(environments):
    return [subprocess.Popen([BENCH, *BENCH_WORDS], env=clean(**one), text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            for one in environments]


class Torchrun(unittest.TestCase):
    def finish(self, ranks):
        texts = [rank.communicate(timeout=DEADLINE_S)[0] for rank in ranks]
        for rank, text in zip(ranks, texts):
            self.assertEqual(rank.returncode, 0, text)
        return texts[0]

    def test_the_store_has_the_port_and_somebody_the_next(self):
        port, held = quiet_ports(2)
        with held:
            ranks = start(torchrun(r, 3, port) for r in range(3))
            self.assertIn("allreduce, 3 ranks", self.finish(ranks))

    def test_two_runs_share_the_ports_and_do_not_mix(self):
        port, held = quiet_ports(1)
        with held:
            a = start(torchrun(r, 2, port, run_id="a") for r in (0, 1))
            b = start(torchrun(r, 3, port, run_id="b") for r in (2, 1, 0))
            self.assertIn("allreduce, 2 ranks", self.finish(a))
            self.assertIn("allreduce, 3 ranks", self.finish(b[::-1]))

    def test_several_machines_need_a_secret(self):
        got = subprocess.run(
            [BENCH, *BENCH_WORDS], capture_output=True, text=True, timeout=DEADLINE_S,
            env=clean(**torchrun(0, 4, 29500, local_size=2, address="0.0.0.0")))
        self.assertNotEqual(got.returncode, 0)
        self.assertIn("set RUBATO_SECRET_FILE", got.stderr)


class Explained(unittest.TestCase):
    """rubato-info says which set of variables wins."""

    def test_nobody(self):
        self.assertEqual(explain(), "one rank: the environment names no job")

    def test_torchrun(self):
        far = torchrun(5, 8, 29500, local_size=4, address="node1")
        self.assertEqual(explain(**far), "rank 5 of 8, rank 0 at node1:29501-29516, says torchrun")
        self.assertIn("127.0.0.1:29501-29516", explain(**torchrun(0, 2, 29500, address="node1")))

    def test_the_first_complete_set_wins(self):
        torch = torchrun(1, 2, 29500)
        ompi = {"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "3", "RUBATO_ROOT": "n1:1"}
        ours = {"RUBATO_RANK": "3", "RUBATO_SIZE": "4", "RUBATO_ROOT": "n1:1"}
        self.assertEqual(explain(**ompi, **torch), "rank 1 of 2, rank 0 at n1:1, says torchrun")
        self.assertEqual(explain(**{**ompi, **torch, **ours}),
                         "rank 3 of 4, rank 0 at n1:1, says RUBATO_RANK and RUBATO_SIZE")
        del torch["MASTER_PORT"]
        self.assertEqual(explain(**ompi, **torch), "rank 2 of 3, rank 0 at n1:1, says Open MPI")

    def test_slurm_and_pmi(self):
        slurm = {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": "7",
                 "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2"}
        pmi = {"PMI_RANK": "1", "PMI_SIZE": "2"}
        self.assertIn("says no address at which ranks can meet", explain(**slurm))
        self.assertIn("says no address at which ranks can meet", explain(**pmi))
        self.assertEqual(explain(**pmi, PMI_FD="3"), "rank 1 of 2, rank 0 known by PMI, says PMI")
        self.assertEqual(explain(**slurm, PMIX_NAMESPACE="n", PMIX_RANK="0"),
                         "rank 0 of 2, rank 0 known by PMIx, says Slurm")
        for nodes, first in (("n1,n2", "n1"), ("node[03-05,9]x,o", "node03x"), ("a[2],b", "a2"),
                             ("r[0-1]n[7-9]", "r0n7"), ("a[3", None), ("", None)):
            said = explain(**slurm, SLURM_STEP_NODELIST=nodes)
            self.assertIn(f"rank 0 at {first}:" if first else "says no address", said, nodes)
        self.assertEqual(explain(**pmi, RUBATO_ROOT="n1:1"),
                         "rank 1 of 2, rank 0 at n1:1, says PMI")
        slurm["SLURM_STEP_NUM_NODES"] = "1"
        self.assertIn("rank 0 of 2, rank 0 at 127.0.0.1:", explain(**slurm))
        del slurm["SLURM_STEP_ID"]  # A batch script: no step, so no ranks.
        self.assertIn("names no job", explain(**slurm))

    def test_bad_values_are_named(self):
        self.assertIn('torchrun\'s RANK="2": expected a whole number from 0 to 1',
                      explain(**torchrun(2, 2, 29500)))
        self.assertIn("MASTER_PORT", explain(**torchrun(0, 2, "none")))


class Mpirun(unittest.TestCase):
    def mpirun(self, name, *words, **variables):
        program = shutil.which("mpirun." + name)
        if program is None:
            self.skipTest(f"mpirun.{name} is not installed")
        return subprocess.run([program, *words, BENCH, *BENCH_WORDS], env=clean(**variables),
                              capture_output=True, text=True, timeout=DEADLINE_S)

    def test_open_mpi_on_one_machine_needs_nothing(self):
        got = self.mpirun("openmpi", "--allow-run-as-root", "--oversubscribe", "-n", "3")
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        self.assertIn("allreduce, 3 ranks", got.stdout)

    def test_mpich_needs_nothing(self):
        got = self.mpirun("mpich", "-n", "3")
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        self.assertIn("allreduce, 3 ranks", got.stdout)

    def test_open_mpi_has_a_store(self):
        """As on several machines: without the variable that says that there is one."""
        bench = " ".join((BENCH, *BENCH_WORDS))
        program = shutil.which("mpirun.openmpi")
        if program is None:
            self.skipTest("mpirun.openmpi is not installed")
        got = subprocess.run(
            [program, "--allow-run-as-root", "--oversubscribe", "-n", "3", "sh", "-c",
             "unset OMPI_COMM_WORLD_LOCAL_SIZE; exec " + bench], env=clean(),
            capture_output=True, text=True, timeout=DEADLINE_S)
        self.assertEqual(got.returncode, 0, got.stdout + got.stderr)
        self.assertIn("allreduce, 3 ranks", got.stdout)


if __name__ == "__main__":
    main()
