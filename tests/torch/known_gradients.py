"""known_gradients.py -- what tests of training share that are run as every rank. Losses are linear,
so each rank's gradients are known, and the ledger says what must have come of them. A rank is late
by a word in the store that the others write when they are done: who waited for it would wait for
ever."""

import datetime
import json
import os
import pathlib
import tempfile
import unittest

import numpy as np
import slow_device
import torch
import torch.distributed as dist

R, N = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
LENGTH, RATE, MOMENTUM = 11, 0.25, 0.5


class Linear(torch.nn.Module):
    """Its loss at w is w . c, so its gradient c."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.zeros(LENGTH - 4))
        self.b = torch.nn.Parameter(torch.zeros(2, 2))

    def forward(self, c):
        c = c.to(self.a.device)
        return c[:-4] @ self.a + c[-4:] @ self.b.view(-1)

    def flat(self):
        return torch.cat([whole(self.a), whole(self.b).view(-1)]).detach().cpu().numpy().copy()


def whole(parameter):
    """All of it, of one that ranks hold together."""
    return parameter.full_tensor() if hasattr(parameter, "full_tensor") else parameter


def gradient(rank, step):
    return np.random.default_rng([rank, step]).integers(-8, 9, LENGTH).astype(np.float32)


def everyone(value):
    got = [None] * N
    dist.all_gather_object(got, value)
    return got


def step(model, optimizer, number):
    optimizer.zero_grad()
    model(torch.from_numpy(gradient(R, number))).backward()
    optimizer.step()


class Case(unittest.TestCase):
    words = 0

    def setUp(self):
        self.other_words()
        self.store = dist.distributed_c10d._get_default_store()
        name = everyone(tempfile.mkdtemp() if R == 0 else None)[0]
        self.folder = pathlib.Path(name)

    def tearDown(self):
        dist.barrier()
        if R == 0:
            for path in self.folder.iterdir():
                path.unlink()
            self.folder.rmdir()

    @staticmethod
    def other_words():
        Case.words += 1

    @staticmethod
    def word(name):
        """A name in the store that no other test uses; the same on all ranks."""
        return f"{name} {Case.words}"

    def ledger(self):
        """The same on all ranks, when rank 0 has finished."""
        return everyone([json.loads(line) for line in
                         (self.folder / "ledger").read_text().splitlines()] if R == 0 else None)[0]

    def check(self, inner, steps, weight=lambda rank: 1, divisor=None, gradient=gradient, each=1):
        """All ranks have the same parameters, those that the ledger leads to, and each gradient
        was in one update. `steps`: of this rank; of `each` ranks together one contributes. Returns
        the ledger."""
        counts, ends = everyone(steps)[::each], everyone(inner.flat().tobytes())
        self.assertEqual(len(set(ends)), 1)
        w, v, seen, lines = np.zeros(LENGTH), np.zeros(LENGTH), [], self.ledger()
        for line in lines:
            total = np.zeros(LENGTH)
            for rank, first, last in line["contributions"]:
                for number in range(first, last + 1):
                    total += weight(rank) * gradient(rank, number)
                    seen.append((rank, number))
            if divisor is not None:
                self.assertEqual(line["weight_denominator"], divisor(line))
            v = MOMENTUM * v + total / line["weight_denominator"]
            w -= line["rate"] * v
        self.assertEqual(sorted(seen), [(r, s) for r, n in enumerate(counts) for s in range(n)])
        np.testing.assert_allclose(inner.flat(), w, rtol=1e-5, atol=1e-5)
        self.assertGreater(np.abs(w).max(), 1)
        return lines

    def late(self, ahead, run, late=(N - 1,)):
        """`run` a step; the late ranks come to their third one when the others have made `ahead`
        more."""
        for number in range(2 + ahead):
            if R in late and number == 2:
                self.store.wait([self.word(f"done {rank}") for rank in range(N)
                                 if rank not in late], datetime.timedelta(seconds=60))
            run(number)
        self.store.set(self.word(f"done {R}"), "")


def main():
    """The ranks' group, and the tests of the script that is run, with models on DEVICE."""
    if "LATE_DEVICE" in os.environ:
        slow_device.use()
    torch.set_default_device(os.environ.get("DEVICE", "cpu"))
    dist.init_process_group(os.environ.get("BACKEND", "rubato"),
                            timeout=datetime.timedelta(seconds=60))
    result = unittest.main(exit=False).result
    if result.wasSuccessful():
        dist.destroy_process_group()
    raise SystemExit(not result.wasSuccessful())
