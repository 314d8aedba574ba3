"""ranks_collectives.py -- run as every rank of a job, from the installed package: each collective
against numpy, over types, shapes and kinds of memory; what is refused."""

import array
import math
import os
import unittest
import weakref

import numpy as np

import rubato

TYPES = ("float32", "float64", "float16", "int8", "int16", "int32", "int64", "uint8", "uint16",
         "uint32", "uint64")


def setUpModule():
    global comm, R, N
    comm = rubato.init(timeout=20)
    R, N = comm.rank, comm.size


def tearDownModule():
    comm.finalize()


def data(rank, shape, dtype="float32"):
    """Small whole numbers: sums are exact in every type."""
    count = int(np.prod(shape))
    return (((np.arange(count) * 7 + rank * 3) % 5).astype(dtype)).reshape(shape)


def every(shape, dtype="float32"):
    return np.stack([data(rank, shape, dtype) for rank in range(N)])


class Lent:
    """What knows DLPack and nothing else, as a tensor of a framework."""

    def __init__(self, held, device=1):
        self.held, self.device = held, device

    def __dlpack_device__(self):
        return (self.device, 0)

    def __dlpack__(self):
        return self.held.__dlpack__()


class Collectives(unittest.TestCase):
    def same(self, got, expected):
        np.testing.assert_array_equal(got, expected)
        self.assertEqual(got.shape, np.shape(expected))

    def test_allreduce(self):
        for dtype in TYPES:
            for op, by in (("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod)):
                whole = every((3, 5), dtype)
                got = comm.allreduce(data(R, (3, 5), dtype), op=op)
                self.assertEqual(got.dtype, np.dtype(dtype))
                self.same(got, by(whole, axis=0).astype(dtype))
        self.same(comm.allreduce(data(R, (4,)), op="avg"),
                  every((4,)).sum(axis=0) * np.float32(1 / N))

    def test_in_place_and_out(self):
        memory = data(R, (1000,))
        self.assertIs(comm.allreduce(memory, out=memory), memory)
        self.same(memory, every((1000,)).sum(axis=0))
        out = np.zeros(1000, np.float32)
        self.assertIs(comm.allreduce(data(R, (1000,)), out), out)
        self.same(out, memory)

    def test_orders_of_memory(self):
        given = np.asfortranarray(data(R, (4, 6)))
        expected = every((4, 6)).sum(axis=0)
        self.same(comm.allreduce(given), expected)
        self.same(comm.allreduce(given, np.empty((4, 6), np.float32, order="F")), expected)
        self.same(comm.reduce(given) if R == 0 else expected, expected)
        if R:
            comm.reduce(given)
        for call, words in ((lambda: comm.allreduce(given, np.empty((4, 6), np.float32)), "orders"),
                            (lambda: comm.allgather(given), "not in C order"),
                            (lambda: comm.allreduce(Lent(given)), "pass `out`"),
                            (lambda: comm.allgatherv(given, [24] * N), "not in C order")):
            with self.assertRaisesRegex(rubato.ArgumentError, words):
                call()
        self.same(comm.allreduce(np.float64(R)), np.float64(sum(range(N))))
        self.same(comm.allreduce(np.empty((0, 3), np.float32)), np.empty((0, 3), np.float32))

    def test_other_collectives(self):
        for dtype in ("float32", "int64"):
            root = N - 1
            got = comm.reduce(data(R, (6,), dtype), root=root)
            if R == root:
                self.same(got, every((6,), dtype).sum(axis=0))
            else:
                self.assertIsNone(got)
            got = comm.reduce_scatter(data(R, (2 * N, 3), dtype))
            self.same(got, every((2 * N, 3), dtype).sum(axis=0)[2 * R:2 * R + 2])
            self.same(comm.allgather(data(R, (2, 3), dtype)), every((2, 3), dtype))
            memory = data(R, (5,), dtype)
            comm.broadcast(memory, root=root)
            self.same(memory, data(root, (5,), dtype))
            got = comm.alltoall(data(R, (N, 4), dtype))
            self.same(got, every((N, 4), dtype)[:, R])
            got = comm.gather(data(R, (3,), dtype), root=root)
            if R == root:
                self.same(got, every((3,), dtype))
            else:
                self.assertIsNone(got)
            out = np.empty(3, dtype)
            comm.scatter(data(root, (N, 3), dtype) if R == root else None, out, root=root)
            self.same(out, data(root, (N, 3), dtype)[R])
        comm.barrier()

    def test_uneven(self):
        counts = [rank + 1 for rank in range(N)]
        got = comm.allgatherv(data(R, (R + 1,)), counts)
        self.same(got, np.concatenate([data(rank, (rank + 1,)) for rank in range(N)]))
        offsets = [2 * rank * (N + 1) for rank in range(N)]
        out = np.full(offsets[-1] + N, -1, np.float32)
        comm.allgatherv(data(R, (R + 1,)), counts, out, offsets)
        for rank in range(N):
            self.same(out[offsets[rank]:offsets[rank] + rank + 1], data(rank, (rank + 1,)))
        self.assertEqual((out == -1).sum(), len(out) - sum(counts))
        np.full(offsets[-1] + N, -1, np.float32) # What numpy gives out again.
        got = comm.allgatherv(data(R, (R + 1,)), counts, offsets=offsets)
        self.same(got, np.where(out == -1, 0, out))
        total = sum(counts)
        got = comm.reduce_scatterv(data(R, (total,)), counts)
        begin = sum(counts[:R])
        self.same(got, every((total,)).sum(axis=0)[begin:begin + R + 1])
        sends = [R + peer for peer in range(N)]
        got = comm.alltoallv(np.full(sum(sends), R, np.int32), sends, sends)
        self.same(got, np.concatenate([np.full(R + peer, peer, np.int32) for peer in range(N)]))

    def test_messages(self):
        if N == 1:
            return
        to, come = (R + 1) % N, (R - 1) % N
        out = np.empty(7, np.float64)
        with comm.op_recv(out, come, tag=3) as receive:
            receive.start()
            comm.send(data(R, (7,), "float64"), to, tag=3)
            self.same(receive.wait(), data(come, (7,), "float64"))
        for length in (0, 3, 50000):
            got = np.full(length + come, -1, np.float32)
            self.assertIs(comm.sendrecv(data(R, (length + R,)), to, got, come, 5, 5), got)
            self.same(got, data(come, (length + come,)))
        with self.assertRaises(rubato.ArgumentError):
            comm.sendrecv(out, to, np.empty(7, np.float32), come)

    def test_kinds_of_memory(self):
        for made in (bytearray, lambda b: memoryview(bytearray(b)), lambda b: array.array("B", b)):
            memory = made(bytes([1 + R] * 9))
            comm.allreduce(memory, out=memory, op="max")
            self.assertEqual(bytes(memory), bytes([N] * 9))
        words = array.array("d", [1.5] * 4)
        comm.allreduce(words, out=words)
        self.assertEqual(list(words), [1.5 * N] * 4)
        held = data(R, (3, 4))
        lent = Lent(held)
        self.assertIs(comm.allreduce(lent, out=lent), lent)
        self.same(held, every((3, 4)).sum(axis=0))
        turned = np.empty((3, 4), np.float32).T
        comm.allreduce(Lent(data(R, (3, 4)).T), out=Lent(turned))
        self.same(turned.T, every((3, 4)).sum(axis=0))
        with self.assertRaisesRegex(rubato.ArgumentError, "not contiguous"):
            comm.allreduce(Lent(np.zeros((4, 4), np.float32)[:, :2]))
        with self.assertRaisesRegex(rubato.UnsupportedError, "device"):
            comm.allreduce(Lent(held, device=2))

    def test_bfloat16(self):
        try:
            import ml_dtypes
        except ImportError:
            self.skipTest("ml_dtypes is not installed")
        given = data(R, (9,)).astype(ml_dtypes.bfloat16)
        got = comm.allreduce(given)
        self.assertEqual(got.dtype, given.dtype)
        self.same(got.astype(np.float32), every((9,)).sum(axis=0))
        with self.assertRaisesRegex(rubato.ArgumentError, "expected one of"):
            comm.allreduce(given.view(given.dtype.newbyteorder(">")))

    def test_own_memory(self):
        memory = comm.alloc((3, 1000))
        self.assertEqual(memory.ctypes.data % 4096, 0)
        self.assertFalse(memory.any())
        memory[:] = data(R, (3, 1000))
        comm.allreduce(memory, out=memory)
        self.same(memory, every((3, 1000)).sum(axis=0))
        part = memory[1]
        del memory
        self.same(part, every((3, 1000)).sum(axis=0)[1]) # A view holds it.
        with self.assertRaisesRegex(rubato.ArgumentError, "1 arrays of alloc"):
            comm.finalize()
        self.assertEqual(comm.alloc(np.int64(3)).shape, (3,))
        registered = np.zeros(100, np.float32)
        comm.register(registered)
        comm.allreduce(registered, out=registered)
        comm.unregister(registered)

    def test_persistent(self):
        given, out = data(R, (100,)), np.empty(100, np.float32)
        with comm.op_allreduce(given, out) as operation:
            for turn in range(5):
                given[:] = data(R, (100,)) + turn
                operation.start()
                if turn % 2:
                    while not operation.test():
                        pass
                else:
                    self.assertIs(operation.wait(), out)
                self.same(out, every((100,)).sum(axis=0) + np.float32(N * turn))
        with self.assertRaisesRegex(rubato.ArgumentError, "freed"):
            operation.start()
        for make, expected in (
                (lambda: comm.op_allgather(data(R, (2,))), every((2,))),
                (lambda: comm.op_reduce_scatter(data(R, (N,))), every((N,)).sum(axis=0)[R:R + 1]),
                (lambda: comm.op_alltoall(data(R, (N, 2))), every((N, 2))[:, R]),
                (lambda: comm.op_allreduce_helped(data(R, (20000,))),
                 every((20000,)).sum(axis=0))):
            with make() as operation:
                self.same(operation.start().wait(), expected)
        with comm.op_barrier() as operation:
            self.assertIsNone(operation.start().wait())
        operation = comm.op_allreduce(np.ones(50000, np.float32)).start()
        del operation # In flight: it and its buffers stay until all is over.

    def test_split(self):
        half = comm.split(R % 2, key=-R)
        mates = [rank for rank in range(N) if rank % 2 == R % 2]
        self.assertEqual((half.size, half.rank), (len(mates), mates[::-1].index(R)))
        self.same(half.allreduce(np.float64(R)), np.float64(sum(mates)))
        half.finalize()
        half.finalize()
        with self.assertRaisesRegex(rubato.ArgumentError, "finalized"):
            half.barrier()
        self.assertEqual(comm.split(None if R else 0) is None, R != 0)

    def test_refused(self):
        refused = (
            (lambda: comm.allreduce(np.zeros((4, 4), np.float32)[:, :2]), "not contiguous"),
            (lambda: comm.allreduce(np.zeros(3, np.complex64)), "expected one of"),
            (lambda: comm.allreduce(np.zeros(3, ">f4")), "expected one of"),
            (lambda: comm.allreduce(np.zeros(3, object)), "expected one of"),
            (lambda: comm.allreduce(np.ma.masked_array([1.0, 2.0], [0, 1])), "a masked array"),
            (lambda: comm.allreduce([1.0]), "list: expected a numpy array"),
            (lambda: comm.allreduce(np.zeros(3), np.zeros(4)), "out has 4 elements: expected 3"),
            (lambda: comm.allreduce(np.zeros(3), np.zeros(3, np.float32)), "different types"),
            (lambda: comm.allreduce(np.zeros(3), np.broadcast_to(0.0, 3)), "."),
            (lambda: comm.allreduce(np.zeros(3), b"123"), "read-only"),
            (lambda: comm.allreduce(np.zeros(3), op="mean"), "expected 'sum', 'max'"),
            (lambda: comm.broadcast(np.zeros(3), root=N), "is not in a communicator"),
            (lambda: comm.allgatherv(np.zeros(1), [1] * (N + 1)), "one for each of"),
            (lambda: comm.allgatherv(np.zeros(2), [1] * N), "counts say 1"),
            (lambda: comm.allgatherv(np.zeros(1), None), r"counts of shape \(1,\)|whole numbers"),
            (lambda: comm.allgatherv(np.zeros(1), [1.5] * N), "whole numbers"),
            (lambda: comm.allgatherv(np.zeros(1), ["1"] * N), "whole numbers"),
            (lambda: comm.alltoallv(np.zeros(1), [-1] * N, [0] * N), "whole numbers"),
            (lambda: comm.allgatherv(np.zeros(1), [1] * N, offsets=[0.5] * N), "whole numbers"),
            (lambda: comm.alloc((-1, -2)), "an array of shape"),
            (lambda: comm.allgatherv(np.zeros(1), [1] * N, np.zeros(1), [5] * N), "need 6"),
            (lambda: comm.set_algorithm("allreduce", "no such"), "no such"),
            (lambda: comm.partial(4, policy="often"), "often"),
            (lambda: comm.partial(4, late="never"), "expected 'accumulate'"),
            *((lambda s=s: comm.partial(4, policy="solo", window=s), "expected seconds, from 0 on")
              for s in (math.inf, math.nan, -1, 1e30)),
        )
        for call, words in refused:
            with self.subTest(words), self.assertRaisesRegex(ValueError, words):
                call()
        if N > 1:
            with self.assertRaisesRegex(rubato.ArgumentError, "do not divide"):
                comm.alltoall(np.zeros(N + 1))
        with self.assertRaisesRegex(TypeError, "has no option 'quorum'"):
            comm.partial(4, quorum=2)
        comm.barrier() # None of these has poisoned it.

    def test_a_forked_child_ends_nothing_of_its_parents(self):
        operation = comm.op_allreduce(np.full(3, R + 1.0))
        if R > 0: # In flight until rank 0 starts it, which is after the barrier.
            operation.start()
            child = os.fork()
            if child == 0:
                gone, refused = weakref.ref(operation), False
                comm._in_flight.clear()
                try:
                    operation.wait()
                except rubato.ArgumentError:
                    refused = True
                del operation # By __del__, too.
                os._exit(0 if refused and gone() is None else 1)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        comm.barrier()
        if R == 0:
            operation.start()
        for _ in range(2):
            self.same(operation.wait(), np.full(3, N * (N + 1) / 2))
            operation.start()
        operation.wait()
        operation.free()

    def test_insight(self):
        before = comm.stats().operations
        comm.barrier()
        self.assertGreater(comm.stats().operations, before)
        peer = comm.peer(N - 1)
        self.assertEqual((peer.node, peer.host), (0, 0))
        self.assertIn("allreduce", comm.explain("allreduce", 1000))
        for algorithm in ("ring", "auto"):
            comm.set_algorithm("allreduce", algorithm)
            self.same(comm.allreduce(data(R, (300,))), every((300,)).sum(axis=0))
        comm.set_timeout(20)
        comm.set_timeout(None)
        with self.assertRaises(rubato.ArgumentError):
            comm.set_timeout(0)
        comm.set_accumulate("whole")
        comm.set_accumulate("step")
        comm.set_wire("bfloat16")
        self.same(comm.allreduce(data(R, (300,))), every((300,)).sum(axis=0))
        comm.set_wire("float32")
        self.assertGreater(comm.now(), 0)


if __name__ == "__main__":
    unittest.main()
