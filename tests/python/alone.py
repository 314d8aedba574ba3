"""alone.py -- one process, from the installed package: jobs of threads, start by a callback, and
what the module tells."""

import contextlib
import inspect
import math
import os
import pathlib
import tempfile
import threading
import unittest

import numpy as np

import rubato


def in_threads(count, function):
    raised, results = [], [None] * count

    def body(rank):
        try:
            results[rank] = function(rank)
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=body, args=(rank,)) for rank in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    if raised:
        raise raised[0]
    return results


class Alone(unittest.TestCase):
    def test_a_single_rank(self):
        with rubato.init() as comm:
            self.assertEqual((comm.rank, comm.size), (0, 1))
            self.assertEqual(comm.allreduce(np.arange(3.0)).tolist(), [0, 1, 2])
        self.assertIn("finalized", repr(comm))

    def test_id(self):
        id = rubato.create_id()
        self.assertEqual(len(id), 256)

        def rank(number):
            with rubato.init_id(id, number, 3, timeout=20) as comm:
                return comm.allreduce(np.float64(number)).item()

        self.assertEqual(in_threads(3, rank), [3, 3, 3])
        with self.assertRaisesRegex(rubato.ArgumentError, "256"):
            rubato.init_id(b"short", 0, 1)

    def test_the_end_with_operations_in_flight(self):
        """Their buffers have no other reference, and are the library's until it has ended."""
        id, count = rubato.create_id(), 2

        def rank(number):
            comm = rubato.init_id(id, number, count, timeout=20)
            comm.op_allreduce(np.ones(4 << 20, np.float32)).start()
            comm.op_recv(np.ones(4 << 20, np.float32), 1 - number).start()
            with contextlib.suppress(rubato.PeerError):  # The other one was first.
                comm.finalize()
            return repr(comm)

        self.assertEqual(in_threads(count, rank), ["<rubato.Communicator: finalized>"] * count)

    def test_timeouts(self):
        with rubato.init(timeout=math.inf) as comm:
            comm.set_timeout(10.0**300)
            with comm.op_barrier() as barrier:
                barrier.start().wait(math.inf)
            for wrong in -1, -math.inf, math.nan:
                with self.assertRaisesRegex(ValueError, "a timeout of"):
                    comm.set_timeout(wrong)

    def test_oob(self):
        meet, parts = threading.Barrier(2), [None, None]

        def rank(number):
            def allgather(mine):
                parts[number] = mine
                meet.wait(20)
                got = list(parts)
                meet.wait(20)
                return got

            with rubato.init_oob(allgather, number, 2, timeout=20) as comm:
                return comm.allgather(np.int32(number)).tolist()

        self.assertEqual(in_threads(2, rank), [[0, 1], [0, 1]])

        def broken(mine):
            raise KeyError("the callback's own")

        with self.assertRaisesRegex(KeyError, "the callback's own"):
            rubato.init_oob(broken, 0, 2)
        with self.assertRaisesRegex(rubato.MismatchError, "expected 2 of"):
            rubato.init_oob(lambda mine: [mine], 0, 2)

    def test_module(self):
        self.assertIn("RUBATO_TIMEOUT", [setting.variable for setting in rubato.settings()])
        self.assertIn("allreduce", rubato.operations())
        self.assertIn("ring", rubato.algorithms("allreduce"))
        self.assertIn("rank", rubato.prove("allreduce", "ring", 4))
        self.assertIn(rubato.reduction_kernel(), ("plain", "sse2", "avx2", "avx512", "neon"))
        self.assertTrue(pathlib.Path(rubato.get_include(), "rubato.h").exists())
        self.assertTrue(os.path.exists(rubato.get_library()))
        self.assertIn("one rank", rubato.explain_job())
        for name in rubato.__all__:
            self.assertTrue(getattr(rubato, name).__doc__, name)
        with self.assertRaises(rubato.ArgumentError) as caught:
            rubato.prove("allreduce", "no such", 4)
        self.assertEqual(caught.exception.status, -1)
        self.assertIsInstance(caught.exception, ValueError)

    def test_what_is_public_has_types_and_a_text(self):
        found = 0
        for name in rubato.__all__:
            thing = getattr(rubato, name)
            inside = vars(thing).items() if inspect.isclass(thing) else [(name, thing)]
            for what, function in inside:
                if what.startswith("_") or not inspect.isfunction(function):
                    continue
                found += 1
                with self.subTest(f"{name}: {what}"):
                    about = inspect.signature(function)
                    self.assertTrue(function.__doc__)
                    self.assertIsNot(about.return_annotation, about.empty)
                    self.assertEqual([p.name for p in about.parameters.values()
                                      if p.annotation is p.empty and p.name != "self"], [])
        self.assertGreater(found, 50)

    def test_a_ledger_of_a_link_is_where_it_leads(self):
        with tempfile.TemporaryDirectory() as folder:
            link = pathlib.Path(folder, "link")
            link.symlink_to("ledger")
            with rubato.Ledger(link) as ledger:
                ledger.average(range(2), step=4, period=4)
            self.assertTrue(link.is_symlink())
            self.assertIn('"ranks":[0,1]', link.read_text())
            with self.assertRaises(KeyError), rubato.Ledger(link) as ledger:
                ledger.average(range(3), step=4, period=4)
                raise KeyError
            self.assertTrue(link.is_symlink())
            self.assertIn('"ranks":[0,1]', link.read_text())  # As before.
            link.unlink()
            link.symlink_to("/dev/full")
            with self.assertRaises(OSError), rubato.Ledger(link) as ledger:
                ledger.average(range(2), step=4, period=4)
            self.assertTrue(link.is_char_device())

    def test_wrong_environment(self):
        os.environ["RUBATO_RANK"] = "0"
        try:
            with self.assertRaisesRegex(rubato.ArgumentError, "RUBATO_SIZE"):
                rubato.init()
        finally:
            del os.environ["RUBATO_RANK"]


if __name__ == "__main__":
    unittest.main()
