"""ranks_relaxed.py LEDGER -- run as every rank of a job, from the installed package: partial and
lagged allreduce, their laws as Python sees them, and the ledger."""

import sys
import time
import unittest

import numpy as np

import rubato

LEDGER = sys.argv.pop(1)


def setUpModule():
    global comm, R, N
    comm = rubato.init(timeout=20)
    R, N = comm.rank, comm.size


def tearDownModule():
    comm.finalize()


class Relaxed(unittest.TestCase):
    def test_conservation(self):
        """What all commit is delivered, to everybody, and the rounds say whose it was."""
        for policy in ("solo", "majority", f"quorum:{N}", "adaptive", "deadline:1ms"):
            with self.subTest(policy), \
                    comm.partial(100, "float64", "sum", policy, rounds="free", seed=3) as partial:
                total, rounds, seen = np.zeros(100), [], 0
                for step in range(10):
                    time.sleep(0.002 * (R == step % N))
                    buffer = partial.acquire()
                    buffer[:] = step + R
                    partial.commit(step, weight=R + 1)
                    for result, round in partial.collect():
                        total += result
                        rounds.append(round.round)
                        seen += int(round.ranks["count"].sum())
                partial.drain()
                for result, round in partial.collect():
                    total += result
                    rounds.append(round.round)
                    seen += int(round.ranks["count"].sum())
                expected = sum(step + rank for step in range(10) for rank in range(N))
                np.testing.assert_array_equal(total, np.full(100, expected))
                self.assertEqual(rounds, list(range(len(rounds))))
                self.assertEqual(seen, 10 * N)
                stats = partial.stats()
                self.assertEqual((stats.committed, stats.delivered, stats.pending), (10, 10, 0))

    def test_rounds(self):
        with comm.partial(3, policy=f"quorum:{N}", normalise="weight") as partial:
            partial.contribute(np.full(3, R, np.float32), 0, weight=R + 1)
            (result, round), = partial.collect()
        weight = sum(range(1, N + 1))
        self.assertEqual((round.round, round.contributors, round.weight, round.divisor),
                         (0, N, weight, weight))
        self.assertEqual(round.ranks["weight"].tolist(), list(range(1, N + 1)))
        np.testing.assert_allclose(result, np.full(3, sum(range(N)) / weight), rtol=1e-6)

    def test_lent(self):
        with comm.partial(3, policy=f"quorum:{N}") as partial:
            partial.contribute(np.ones(3, np.float32), 0)
            with partial.collect_view() as (result, round):
                self.assertFalse(result.flags.writeable)
                with self.assertRaisesRegex(rubato.ArgumentError, "release"):
                    with partial.collect_view():
                        pass
                np.testing.assert_array_equal(result, np.ones(3))
            with partial.collect_view() as lent:
                self.assertIsNone(lent)
            with self.assertRaisesRegex(rubato.ArgumentError, "the last one was 0"):
                partial.contribute(np.ones(3, np.float32), 0)
            with self.assertRaisesRegex(rubato.ArgumentError, "expected 3 of float32"):
                partial.contribute(np.ones(3), 1)

    def test_save(self):
        with comm.partial(2, policy="majority", seed=5) as partial:
            seen = []
            for step in range(3):
                partial.contribute(np.ones(2, np.float32), step)
                seen += [round.round for _, round in partial.collect()]
            partial.drain()
            seen += [round.round for _, round in partial.collect()]
            state = partial.save()  # Of here, though others may go on to further rounds.
        with comm.partial(2, policy="majority", seed=5, state=state) as partial:
            partial.contribute(np.ones(2, np.float32), 3)
            partial.drain()
            numbers = [round.round for _, round in partial.collect()]
        self.assertEqual(numbers[0], seen[-1] + 1)
        with self.assertRaises(rubato.ArgumentError):
            comm.partial(2, policy="solo", state=state)

    def test_ledger(self):
        with comm.partial(2, policy="solo") as partial:
            ledger = rubato.Ledger(LEDGER) if R == 0 else None
            for step in range(4):
                partial.contribute(np.ones(2, np.float32), step)
                for _, round in partial.collect():
                    if ledger:
                        ledger.update(round, rate=0.5)
            partial.drain()
            for _, round in partial.collect():
                if ledger:
                    ledger.update(round)
            if ledger:
                ledger.average(range(N), step=4, period=4)
                ledger.close()

    def test_lagged(self):
        with comm.lagged(4, "float64", "sum", lag=2) as lagged:
            got = []
            for step in range(6):
                lagged.accumulate(np.full(4, step, np.float64), weight=2)
                lagged.acquire()[:] += R
                lagged.begin()
                result = lagged.collect()
                if result is not None:
                    got.append((result[0].copy(), result[1]))
            while (result := lagged.flush()) is not None:
                got.append((result[0].copy(), result[1]))
            self.assertTrue(lagged.test())
        self.assertEqual(len(got), 6)
        for step, (vector, weight) in enumerate(got):
            np.testing.assert_array_equal(vector, np.full(4, N * step + sum(range(N))))
            self.assertEqual(weight, 2 * N)


if __name__ == "__main__":
    unittest.main()
