"""ranks_collectives.py -- run as every rank of a job: each collective of c10d beside numpy and
torch, and some beside what Gloo makes of the same call. Tensors are on DEVICE, or else the host."""

import datetime
import json
import os
import unittest

import numpy as np
import torch
import torch.distributed as dist

R, N = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
SIGNED = (torch.int8, torch.int16, torch.int32, torch.int64)
UNSIGNED = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
OLD = int(torch.__version__.split(".")[1]) < 15 # Version 2.11 is the oldest that was tried.
OPS = {"SUM": np.add, "PRODUCT": np.multiply, "MIN": np.minimum, "MAX": np.maximum}


def data(rank, shape, dtype=torch.float32, salt=0):
    """Small whole numbers, so that every order of additions has one result."""
    values = np.random.default_rng([rank, salt]).integers(1, 4, shape)
    return torch.tensor(values).to(dtype)


def every(shape, dtype=torch.float32, salt=0):
    return [data(rank, shape, dtype, salt) for rank in range(N)]


def numbers(tensor):
    return tensor.to("cpu", torch.float64).numpy()


class Collectives(unittest.TestCase):
    def same(self, got, expected):
        expected = torch.as_tensor(expected)
        self.assertEqual(tuple(got.shape), tuple(expected.shape))
        np.testing.assert_array_equal(numbers(got), numbers(expected))

    def test_allreduce_of_all_types_and_operators(self):
        for dtype in FLOATS + SIGNED + UNSIGNED:
            for name, function in OPS.items():
                tensor = data(R, (37,), dtype)
                dist.all_reduce(tensor, getattr(dist.ReduceOp, name))
                self.assertEqual(tensor.dtype, dtype)
                self.same(tensor, function.reduce([numbers(t) for t in every((37,), dtype)]))
        for dtype in FLOATS:
            tensor = data(R, (5,), dtype) * N
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
            self.same(tensor, sum(every((5,), dtype)))

    def test_allreduce_of_what_is_no_number_of_the_library(self):
        flag = torch.tensor([True, R == 0, False])
        dist.all_reduce(flag)
        self.assertEqual(flag.tolist(), [True, True, False])
        flag = torch.tensor([True, R == 0, False])
        dist.all_reduce(flag, dist.ReduceOp.MIN)
        self.assertEqual(flag.tolist(), [True, N == 1, False])
        for dtype in (torch.complex64, torch.complex128):
            tensor = torch.tensor([1 + 2j, R * 1j], dtype=dtype)
            dist.all_reduce(tensor)
            self.assertEqual(tensor.tolist(), [N * (1 + 2j), sum(range(N)) * 1j])

    def test_what_cannot_be_reduced_is_named(self):
        for dtype, op, words in ((torch.int32, "BAND", "BAND of Int"),
                                 (torch.int64, "BXOR", "BXOR of Long"),
                                 (torch.float8_e5m2, "SUM", "SUM of Float8_e5m2")):
            with self.assertRaisesRegex(NotImplementedError, f"allreduce: ReduceOp.{words}"):
                dist.all_reduce(torch.zeros(3).to(dtype), getattr(dist.ReduceOp, op))
        with self.assertRaisesRegex(NotImplementedError, "Sparse"):
            dist.broadcast(torch.eye(3).to_sparse(), 0)
        with self.assertRaisesRegex(NotImplementedError, "sparse tensors only sums and averages"):
            dist.all_reduce(torch.eye(3).to_sparse(), dist.ReduceOp.MAX)
        with self.assertRaisesRegex(NotImplementedError, "its memory cannot be reached"):
            dist.group.WORLD._get_backend(torch.device("cpu")).allreduce(
                torch.zeros(3, device="meta"))
        dist.barrier()

    def test_sums_of_sparse_tensors(self):
        """Ranks have elements at other places, as many as they like, some twice."""
        def own(rank, dtype):
            rows = torch.tensor([[(rank + i) % 7 for i in range(rank + 2)] + [rank]])
            values = torch.arange(rows.numel() * 3).reshape(-1, 3) + rank * 10
            return torch.sparse_coo_tensor(rows, values.to(dtype), (7, 3))

        for dtype in (torch.float32, torch.float64, torch.int64, torch.bfloat16):
            tensor = own(R, dtype)
            dist.all_reduce(tensor)
            expected = sum(own(rank, dtype).to_dense() for rank in range(N))
            self.assertTrue(tensor.is_sparse)
            self.assertEqual(tensor.to_dense().tolist(), expected.tolist())
        for dtype in (torch.complex64, torch.complex128):
            turned = [own(rank, dtype) * (1 + 1j) ** rank for rank in range(N)]
            expected = sum(one.to_dense() for one in turned)
            for op, divisor in ((dist.ReduceOp.SUM, 1), (dist.ReduceOp.AVG, N)):
                for grad in (True, False):
                    tensor = turned[R].clone()
                    with torch.set_grad_enabled(grad):
                        dist.all_reduce(tensor, op)
                    self.assertEqual((tensor.is_sparse, tensor.dtype), (True, dtype))
                    torch.testing.assert_close(tensor.to_dense(), expected / divisor)
            tensor = turned[R].clone()
            real = torch.view_as_real(tensor)
            work = dist.all_reduce(real, async_op=True) # The view that its caller has.
            work.wait()
            torch.testing.assert_close(real.to_dense(), torch.view_as_real(expected))
            torch.testing.assert_close(tensor.to_dense(), expected)
        tensor, twice = own(R, torch.float32), own(R, torch.float32)
        work = dist.all_reduce(tensor, dist.ReduceOp.AVG, async_op=True)
        dist.all_reduce(twice)
        work.wait()
        torch.testing.assert_close(tensor.to_dense() * N, twice.to_dense())
        for who in (N - 1, None): # Who has some at all.
            tensor = (torch.eye(5) if R == who else torch.zeros(5, 5)).to_sparse()
            dist.all_reduce(tensor)
            self.same(tensor.to_dense(), torch.zeros(5, 5) if who is None else torch.eye(5))

    def test_gaps_and_nothing(self):
        for shape, view in (((6, 4), lambda t: t.t()), ((6, 4), lambda t: t[:, 1:3]),
                            ((9,), lambda t: t[::2]), ((0,), lambda t: t), ((3, 0), lambda t: t)):
            whole = data(R, shape)
            before = whole.clone()
            dist.all_reduce(view(whole))
            expected = before
            view(expected).copy_(sum(view(t) for t in every(shape)))
            self.same(whole, expected)
            got = view(torch.zeros(shape))
            if R == N - 1:
                got.copy_(view(data(R, shape)))
            dist.broadcast(got, N - 1)
            self.same(got, view(data(N - 1, shape)))
        scalar = torch.tensor(1.0)
        dist.all_reduce(scalar)
        self.assertEqual(scalar.item(), N)

    def test_broadcast_of_every_type(self):
        for dtype in FLOATS + SIGNED + UNSIGNED + (torch.bool, torch.float8_e4m3fn,
                                                   torch.complex64, torch.complex128):
            for root in range(N):
                tensor = data(R, (11,)).to(dtype)
                dist.broadcast(tensor, root)
                self.assertTrue(torch.equal(tensor.view(torch.uint8),
                                            data(root, (11,)).to(dtype).view(torch.uint8)))

    def test_reduce(self):
        for root in range(N):
            tensor = data(R, (3, 5), salt=root)
            dist.reduce(tensor, root)
            self.same(tensor, sum(every((3, 5), salt=root)) if R == root
                      else data(R, (3, 5), salt=root))

    def test_allgather(self):
        got = [torch.empty(2, 3) for _ in range(N)]
        dist.all_gather(got, data(R, (2, 3)))
        self.same(torch.stack(got), torch.stack(every((2, 3))))
        whole = torch.empty(N, 2, 3)
        dist.all_gather(list(whole), data(R, (2, 3)))
        self.same(whole, torch.stack(every((2, 3))))
        uneven = [torch.empty(rank + 1, 2) for rank in range(N)]
        dist.all_gather(uneven, data(R, (R + 1, 2)))
        for rank in range(N):
            self.same(uneven[rank], data(rank, (rank + 1, 2)))
        for shape in ((N * 4, 3), (N, 4, 3)):
            flat = torch.empty(shape)
            dist.all_gather_into_tensor(flat, data(R, (4, 3)))
            self.same(flat.view(N, 4, 3), torch.stack(every((4, 3))))
        gaps = torch.empty(3, N * 4).t()
        dist.all_gather_into_tensor(gaps, data(R, (4, 3)))
        self.same(gaps, torch.cat(every((4, 3))))

    def test_coalesced(self):
        shapes = ((3,), (2, 2), (0,), (65,))
        tensors = [data(R, shape, salt=i) for i, shape in enumerate(shapes)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for i, shape in enumerate(shapes):
            self.same(tensors[i], sum(every(shape, salt=i)))
        wholes = [torch.empty((N, *shape)) for shape in shapes]
        with dist._coalescing_manager():
            for i, shape in enumerate(shapes):
                dist.all_gather_into_tensor(wholes[i], data(R, shape, salt=i))
        for i, shape in enumerate(shapes):
            self.same(wholes[i], torch.stack(every(shape, salt=i)))
        parts = [torch.empty(shape) for shape in shapes]
        with dist._coalescing_manager():
            for i, shape in enumerate(shapes):
                dist.reduce_scatter_tensor(parts[i], data(R, (N, *shape), salt=i))
        for i, shape in enumerate(shapes):
            self.same(parts[i], sum(every((N, *shape), salt=i))[R])
        lists = [[torch.empty(shape) for shape in shapes] for _ in range(N)]
        dist.all_gather_coalesced(lists, [data(R, s, salt=i) for i, s in enumerate(shapes)])
        for rank in range(N):
            for i, shape in enumerate(shapes):
                self.same(lists[rank][i], data(rank, shape, salt=i))

    def test_gather_and_scatter(self):
        for root in range(N):
            got = [torch.empty(4, 2) for _ in range(N)] if R == root else None
            dist.gather(data(R, (4, 2)), got, root)
            if R == root:
                self.same(torch.stack(got), torch.stack(every((4, 2))))
            got = torch.empty(4, 2)
            dist.scatter(got, every((4, 2), salt=root) if R == root else None, root)
            self.same(got, data(R, (4, 2), salt=root))

    def test_reduce_scatter(self):
        got = torch.empty(5)
        dist.reduce_scatter(got, list(data(R, (N, 5))))
        self.same(got, sum(every((N, 5)))[R])
        shapes = [(rank * 2 + 1,) for rank in range(N)]
        got = torch.empty(shapes[R])
        dist.reduce_scatter(got, [data(R, shape, salt=i) for i, shape in enumerate(shapes)])
        self.same(got, sum(every(shapes[R], salt=R)))
        got = torch.empty(3, 2)
        dist.reduce_scatter_tensor(got, data(R, (N * 3, 2)), dist.ReduceOp.MAX)
        self.same(got, torch.stack(every((N * 3, 2))).amax(0)[R * 3:R * 3 + 3])

    def test_alltoall(self):
        got = torch.empty(N * 2, 3)
        dist.all_to_all_single(got, data(R, (N * 2, 3)))
        self.same(got, torch.cat([t[R * 2:R * 2 + 2] for t in every((N * 2, 3))]))
        # Rank a sends rank b a + 2 b rows.
        rows = [[a + 2 * b for b in range(N)] for a in range(N)]
        sent = [torch.split(data(a, (sum(rows[a]), 2)), rows[a]) for a in range(N)]
        expected = [sent[a][R] for a in range(N)]
        got = torch.empty(sum(rows[a][R] for a in range(N)), 2)
        dist.all_to_all_single(got, torch.cat(sent[R]), [rows[a][R] for a in range(N)], rows[R])
        self.same(got, torch.cat(expected))
        got = [torch.empty_like(part) for part in expected]
        dist.all_to_all(got, [part.clone() for part in sent[R]])
        self.same(torch.cat(got), torch.cat(expected))
        with self.assertRaisesRegex(ValueError, "alltoall"):
            dist.all_to_all_single(torch.empty(N), torch.empty(N), [0] * N, [1] * N)

    def test_messages(self):
        if N == 1:
            with self.assertRaises(ValueError):
                dist.recv(torch.empty(1))
            return
        to, source = (R + 1) % N, (R - 1) % N
        for count in (0, 1, 1000, 300000):
            # All send first; and by tag, not in the order of the calls.
            works = [dist.isend(data(R, (count,), salt=tag), to, tag=tag) for tag in (1, 2)]
            got = [torch.empty(count) for _ in range(2)]
            works += [dist.irecv(got[tag - 1], source, tag=tag) for tag in (2, 1)]
            for work in works:
                self.assertTrue(work.wait())
                self.assertTrue(work.is_completed() and work.is_success())
            for tag in (1, 2):
                self.same(got[tag - 1], data(source, (count,), salt=tag))
        gaps = torch.zeros(10)
        works = dist.batch_isend_irecv([dist.P2POp(dist.isend, data(R, (10,))[::2], to),
                                        dist.P2POp(dist.irecv, gaps[1::2], source)])
        for work in works:
            work.wait()
        self.same(gaps[1::2], data(source, (10,))[::2])
        self.same(gaps[::2], torch.zeros(5))
        with self.assertRaisesRegex(ValueError, "negative"):
            dist.send(torch.zeros(1), to, tag=-3)

    def test_messages_from_whoever_comes_first(self):
        if R == 0 and N > 1:
            for turn in range(3):
                came = []
                for _ in range(N - 1):
                    got = torch.zeros(7)
                    source = dist.recv(got, tag=turn)
                    self.same(got, data(source, (7,), salt=turn))
                    came.append(source)
                self.assertEqual(sorted(came), list(range(1, N)))
        elif N > 1:
            for turn in range(3):
                dist.send(data(R, (7,), salt=turn), 0, tag=turn)
        dist.barrier()

    def test_works(self):
        tensor = data(R, (1000,))
        work = dist.all_reduce(tensor, async_op=True)
        later = dist.all_reduce(data(R, (3,)), async_op=True)
        future = work.get_future()
        double = future.then(lambda done: done.value()[0] * 2)
        self.same(double.wait(), sum(every((1000,))) * 2)
        self.same(future.wait()[0], sum(every((1000,))))
        self.assertTrue(later.wait() and later.is_completed() and later.is_success())
        self.assertIsNone(None if OLD else later.exception()) # 2.11 cannot show it.
        self.same(later.result()[0], sum(every((3,))))
        self.same(later.get_future().value()[0], sum(every((3,))))
        works = [dist.all_reduce(data(R, (5,)), async_op=True) for _ in range(50)]
        for work in reversed(works):
            work.wait(datetime.timedelta(seconds=30))

    def test_futures_may_wait_for_further_calls(self):
        def again(done):
            work = dist.all_reduce(done.value()[0], async_op=True)
            return work.get_future().wait()[0]

        works = [dist.all_reduce(data(R, (9,), salt=i), async_op=True) for i in range(3)]
        for i in range(3):
            self.same(works[i].get_future().then(again).wait(), sum(every((9,), salt=i)) * N)
        if N > 1:
            got = torch.empty(4)
            work = dist.irecv(got, (R - 1) % N)
            future = work.get_future()
            dist.isend(data(R, (4,)), (R + 1) % N)
            self.same(future.wait()[0], data((R - 1) % N, (4,)))
            work.wait()

    def test_groups(self):
        ranks = list(range(0, N, 2))
        group = dist.new_group(ranks)
        if R in ranks:
            tensor = data(R, (3,))
            dist.all_reduce(tensor, group=group)
            self.same(tensor, sum(data(rank, (3,)) for rank in ranks))
            dist.destroy_process_group(group) # PyTorch 2.11 names groups by how many there are.
        if OLD:
            self.skipTest("PyTorch 2.11 splits only groups that are bound to a device")
        halves = [list(range(N // 2)), list(range(N // 2, N))] if N > 1 else [[0]]
        part = dist.split_group(split_ranks=halves)
        mine = next(half for half in halves if R in half)
        tensor = data(R, (3,))
        dist.all_reduce(tensor, group=part)
        self.same(tensor, sum(data(rank, (3,)) for rank in mine))
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=30))
        dist.barrier()

    def test_memory_of_the_groups(self):
        """Tensors may outlive their group, on some ranks."""
        for outlives in ((), (0,), range(N)):
            group = dist.new_group()
            backend = group._get_backend(torch.device("cpu"))
            self.assertTrue(backend.supports_tensor_alloc(torch.device("cpu")))
            tensors = [backend.allocate_tensor(n, dtype=dtype, device=torch.device("cpu"))
                       for n, dtype in ((1000, torch.float32), (0, torch.int8),
                                        (300000, torch.bfloat16))]
            self.assertEqual([t.numel() for t in tensors], [1000, 0, 300000])
            self.assertEqual(tensors[0].data_ptr() % 4096, 0)
            for tensor in tensors:
                tensor.fill_(R)
                dist.all_reduce(tensor, group=group)
                self.same(tensor, torch.full_like(tensor, sum(range(N))))
            part = tensors[0][10:20]
            if R not in outlives:
                tensor = tensors = part = None
            dist.destroy_process_group(group)
            if R in outlives:
                tensors[0].add_(1)
                self.same(part, torch.full((10,), sum(range(N)) + 1.0))
            with self.assertRaisesRegex(Exception, "has been shut down"):
                backend.allocate_tensor(1, dtype=torch.int8, device=torch.device("cpu"))
            tensor = tensors = part = None
        with self.assertRaisesRegex(NotImplementedError, "memory of meta"):
            dist.group.WORLD._get_backend(torch.device("cpu")).allocate_tensor(
                1, dtype=torch.int8, device=torch.device("meta"))

    @unittest.skipIf(OLD, "PyTorch 2.11 notes no calls but NCCL's")
    def test_flight_recorder(self):
        """torch's own, which notes what any backend is asked for, and that it is over."""
        dist.all_reduce(data(R, (3,)))
        entry = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(
            True, False, "rubato"))["entries"][-1]
        self.assertEqual((entry["profiling_name"], entry["input_sizes"], entry["retired"]),
                         ("rubato:all_reduce", [[3]], True))

    def test_a_backend_for_each_device(self):
        for backend, name in (("cpu:rubato,cuda:gloo", "rubato"), ("cpu:gloo,cuda:rubato", "gloo")):
            group = dist.new_group(backend=backend)
            of_cpu = group._get_backend(torch.device("cpu"))
            of_cuda = group._get_backend(torch.device("cuda"))
            self.assertEqual({of_cpu.name(), of_cuda.name()}, {"rubato", "gloo"})
            self.assertEqual(of_cpu.name(), name)
            tensor = data(R, (3,))
            dist.all_reduce(tensor, group=group)
            self.same(tensor, sum(every((3,))))

    def test_objects(self):
        """In the world, and in pairs that are made without the others."""
        pair = [rank for rank in (R - R % 2, R - R % 2 + 1) if rank < N]
        for ranks, group in ((list(range(N)), None),
                             (pair, dist.new_group(pair, use_local_synchronization=True))):
            first, objects = ranks[0], [{"rank": rank, "text": "x" * rank} for rank in ranks]
            mine = objects[ranks.index(R)]
            got = [None] * len(ranks)
            dist.all_gather_object(got, mine, group=group)
            self.assertEqual(got, objects)
            got = [None] * len(ranks) if R == first else None
            dist.gather_object(mine, got, dst=first, group=group)
            self.assertEqual(got, objects if R == first else None)
            got = [mine, R] if R == first else [None, None]
            dist.broadcast_object_list(got, src=first, group=group)
            self.assertEqual(got, [objects[0], first])
            got = [None]
            dist.scatter_object_list(got, objects if R == first else None, src=first, group=group)
            self.assertEqual(got, [mine])

    def test_the_same_as_gloo(self):
        """On random numbers: exact on two ranks, to rounding on more."""
        other = dist.new_group(backend="gloo")
        torch.manual_seed(R)
        for count in (1, 17, 4096, 100003):
            mine = torch.randn(count)
            theirs, average = mine.clone(), mine.clone()
            dist.all_reduce(mine)
            dist.all_reduce(theirs, group=other)
            dist.all_reduce(average, dist.ReduceOp.AVG)
            if N <= 2:
                self.assertTrue(torch.equal(mine, theirs))
            torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(average, theirs / N, rtol=1e-6, atol=1e-6)
            lists = [[torch.empty(count) for _ in range(N)] for _ in range(2)]
            dist.all_gather(lists[0], mine)
            dist.all_gather(lists[1], mine, group=other)
            self.assertTrue(torch.equal(torch.stack(lists[0]), torch.stack(lists[1])))
        # Works of both may be in flight side by side.
        works = []
        for _ in range(10):
            for group in (None, other):
                works.append(dist.all_reduce(torch.randn(1000), group=group, async_op=True))
        for work in works:
            work.wait()


if __name__ == "__main__":
    torch.set_default_device(os.environ.get("DEVICE", "cpu"))
    dist.init_process_group("rubato", timeout=datetime.timedelta(seconds=60))
    assert "gloo" not in dist.get_backend()
    result = unittest.main(exit=False).result
    if result.wasSuccessful():
        dist.destroy_process_group()
    raise SystemExit(not result.wasSuccessful())
