"""ranks_devices.py -- run as every rank of a job: collectives, messages and training where tensors
are a device's (slow_device.py). What a call reads comes late on the stream where it is called, and
results are read on another stream at once. So who does not wait sees old values: with the faults
that the late device has planted, and without a wait, the same calls must go wrong."""

import ctypes
import datetime
import os
import signal
import unittest

import slow_device as device
import torch
import torch.distributed as dist
from slow_device import LATE_US, PLANTED_US, N, R, empty, every, late, seen, values
from torch.nn.parallel import DistributedDataParallel


class Devices(unittest.TestCase):
    def tearDown(self):
        device.plant("")
        dist.barrier()

    def same(self, got, expected):
        self.assertEqual(got.device.type, device.NAME)
        self.assertTrue(torch.equal(seen(got), expected), (seen(got), expected))

    @unittest.skipIf(device.NAME == "cuda", "of the late device alone")
    def test_nobody_may_touch_its_memory(self):
        tensor = empty(3)
        child = os.fork()
        if child == 0:
            ctypes.string_at(tensor.data_ptr(), 1)
            os._exit(0)
        self.assertEqual(os.waitpid(child, 0)[1], signal.SIGSEGV)

    def test_from_all_to_all(self):
        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
            tensor = late(values(R, (1000,), dtype))
            dist.all_reduce(tensor)
            self.same(tensor, sum(every((1000,), dtype)).to(dtype))
        parts = [empty(2, 3) for _ in range(N)]
        dist.all_gather(parts, late(values(R, (2, 3))))
        for part, expected in zip(parts, every((2, 3))):
            self.same(part, expected)
        parts = [empty(rank + 1) for rank in range(N)]
        dist.all_gather(parts, late(values(R, (R + 1,))))
        for rank, part in enumerate(parts):
            self.same(part, values(rank, (rank + 1,)))
        whole = empty(N * 4)
        dist.all_gather_into_tensor(whole, late(values(R, (4,))))
        self.same(whole, torch.cat(every((4,))))
        part = empty(5)
        dist.reduce_scatter(part, [late(v) for v in values(R, (N, 5))])
        self.same(part, sum(every((N, 5)))[R])
        dist.reduce_scatter_tensor(part, late(values(R, (N * 5,))))
        self.same(part, sum(every((N * 5,)))[R * 5:R * 5 + 5])
        whole = empty(N * 2)
        dist.all_to_all_single(whole, late(values(R, (N * 2,))))
        self.same(whole, torch.cat([v[R * 2:R * 2 + 2] for v in every((N * 2,))]))
        parts = [empty(3) for _ in range(N)]
        dist.all_to_all(parts, [late(v) for v in values(R, (N, 3))])
        for part, expected in zip(parts, every((N, 3))):
            self.same(part, expected[R])

    @unittest.skipIf(device.NAME == "cuda", "a real driver counts nothing")
    def test_whether_the_host_has_a_part(self):
        """In the second call: the first one makes what it needs."""
        if N == 1:
            return
        for dtype in (torch.float32, torch.bfloat16):
            tensor = values(R, (1 << 20,), dtype).to("late")
            dist.all_reduce(tensor)
            before = device.host_copies()
            dist.all_reduce(tensor)
            copies = device.host_copies() - before
            if device.DIRECT:
                self.assertEqual(copies, 0)
            else:
                self.assertGreaterEqual(copies, 2)
            self.same(tensor, sum(every((1 << 20,), dtype)) * N)

    def test_from_and_to_a_root(self):
        for root in range(N):
            tensor = late(values(R, (7,)))
            dist.broadcast(tensor, root)
            self.same(tensor, values(root, (7,)))
            tensor = late(values(R, (7,)))
            dist.reduce(tensor, root)
            self.same(tensor, sum(every((7,))) if R == root else values(R, (7,)))
            parts = [empty(4) for _ in range(N)] if R == root else None
            dist.gather(late(values(R, (4,))), parts, root)
            for part, expected in zip(parts or [], every((4,))):
                self.same(part, expected)
            part = empty(4)
            dist.scatter(part, [late(v) for v in values(R, (N, 4))] if R == root else None, root)
            self.same(part, values(root, (N, 4))[R])

    def test_coalesced(self):
        tensors = [late(values(R, (n,), salt=n)) for n in (3, 0, 65)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for tensor in tensors:
            self.same(tensor, sum(every((len(tensor),), salt=len(tensor))))

    def test_gaps(self):
        for view in (lambda t: t.t(), lambda t: t[:, 1:3]):
            whole = late(values(R, (6, 4)))
            dist.all_reduce(view(whole))
            expected = values(R, (6, 4))
            view(expected).copy_(sum(view(v) for v in every((6, 4))))
            self.same(whole, expected)

    def test_works_and_futures(self):
        tensors = [late(values(R, (50,), salt=i)) for i in range(5)]
        works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
        for i in (4, 2, 0, 1, 3):
            works[i].wait()
            self.same(tensors[i], sum(every((50,), salt=i)))
        tensor = late(values(R, (9,)))
        future = dist.all_reduce(tensor, async_op=True).get_future()
        self.same(future.wait()[0], sum(every((9,))))
        double = future.then(lambda done: done.value()[0] * 2).wait()
        self.assertTrue(torch.equal(double.cpu(), sum(every((9,))) * 2))

    def test_reads_before_come_before(self):
        """What the stream has yet to read when a call is made, the call does not overwrite."""
        for what in ("all_reduce", "irecv"):
            if what == "irecv" and N == 1:
                continue
            tensor, kept = values(R, (1000,)).to(device.NAME), empty(1000)
            device.sleep(LATE_US)
            kept.copy_(tensor)
            if what == "all_reduce":
                dist.all_reduce(tensor)
                expected = sum(every((1000,)))
            else:
                work = dist.irecv(tensor, (R - 1) % N)
                dist.send(values(R, (1000,), salt=1), (R + 1) % N)
                work.wait()
                expected = values((R - 1) % N, (1000,), salt=1)
            self.same(tensor, expected)
            self.assertTrue(torch.equal(kept.cpu(), values(R, (1000,))))

    def test_messages(self):
        if N == 1:
            return
        to, source = (R + 1) % N, (R - 1) % N
        for count in (1, 1000, 300000):
            sent = late(values(R, (count,)))
            got = empty(count)
            works = [dist.isend(sent, to), dist.irecv(got, source)]
            for work in works:
                work.wait()
            self.same(got, values(source, (count,)))
        gaps = empty(5, 2)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, late(values(R, (5,))), to),
                                            dist.P2POp(dist.irecv, gaps[:, 1], source)]):
            work.wait()
        self.same(gaps, torch.stack((torch.full((5,), 9.0), values(source, (5,))), 1))
        if R == 0:
            for _ in range(N - 1):
                got = empty(7)
                self.same(got, values(dist.recv(got), (7,)))
        else:
            dist.send(late(values(R, (7,))), 0)

    def test_host_and_device_meet(self):
        """Where ranks bring what they have."""
        tensor = values(R, (100,))
        if R == 0:
            tensor = late(tensor)
        dist.all_reduce(tensor)
        self.assertTrue(torch.equal(seen(tensor), sum(every((100,)))))

    def test_objects(self):
        got = [None] * N
        dist.all_gather_object(got, {"rank": R})
        self.assertEqual(got, [{"rank": rank} for rank in range(N)])

    def test_without_a_wait_old_values_are_seen(self):
        if N == 1: # Its sum is what is there already.
            return
        tensor = late(values(R, (1000,)), PLANTED_US)
        work = dist.all_reduce(tensor, async_op=True)
        self.assertFalse(torch.equal(seen(tensor), sum(every((1000,)))))
        work.wait()
        self.same(tensor, sum(every((1000,))))

    @unittest.skipIf(device.NAME == "cuda", "faults are the late device's")
    def test_planted_faults_are_noticed(self):
        """Were a call not to wait for what comes before it, or for what it has given to the device
        itself, the tests above would see it."""
        if N == 1: # Its sum is what is there already.
            return
        device.plant("query")
        tensor = late(values(R, (1000,)), PLANTED_US)
        dist.all_reduce(tensor)
        device.plant("")
        self.assertFalse(torch.equal(seen(tensor), sum(every((1000,)))))
        if device.DIRECT: # Its copies are freed, and that waits for streams.
            return
        tensor = late(values(R, (6, 4)))[:, 1:3]
        device.plant("synchronize")
        dist.all_reduce(tensor)
        self.assertFalse(torch.equal(seen(tensor), sum(every((6, 4)))[:, 1:3]))

    def test_a_device_that_does_not_come(self):
        """Its rank says so within the timeout, and the others are told."""
        group = dist.new_group(timeout=datetime.timedelta(seconds=20))
        tensor = empty(10)
        dist.all_reduce(tensor, group=group)
        options = dist.AllreduceOptions()
        options.timeout = datetime.timedelta(seconds=1)
        if R == 0:
            device.sleep(3 * 10**6)
        backend = group._get_backend(torch.device(device.NAME))
        if R == 0 or N > 1:
            words = (f"{device.NAME}:0 has not done what comes before within 1 s" if R == 0 else
                     "rank 0")
            with self.assertRaisesRegex(dist.DistBackendError, words):
                backend.allreduce([tensor], options).wait()
            with self.assertRaises(dist.DistBackendError):
                dist.all_reduce(tensor, group=group)
        dist.barrier()

    def test_training_is_that_of_the_host(self):
        ends = []
        for where in ("cpu", device.NAME):
            torch.manual_seed(5)
            model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.ReLU(),
                                        torch.nn.Linear(30, 3)).to(where)
            model = DistributedDataParallel(model, bucket_cap_mb=0.001)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
            samples = torch.Generator().manual_seed(100 + R)
            for step in range(5):
                x = torch.randn(16, 20, generator=samples)
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(x.to(where)),
                                                         x[:, :3].argmax(1).to(where))
                loss.backward()
                optimizer.step()
            ends.append(torch.cat([p.detach().cpu().view(-1) for p in model.parameters()]))
        torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)

    def relaxed(self, where, wrap, exchange):
        torch.manual_seed(6)
        model = wrap(torch.nn.Linear(8, 2).to(where))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.5)
        exchange = exchange(model, optimizer)
        samples = torch.Generator().manual_seed(200 + R)
        for step in range(6):
            optimizer.zero_grad()
            model(torch.randn(4, 8, generator=samples).to(where)).square().mean().backward()
            optimizer.step()
            if hasattr(exchange, "step"):
                exchange.step()
        exchange.finish()
        return torch.cat([p.detach().cpu().view(-1) for p in model.parameters()])

    def test_exchanges_and_averages_are_those_of_the_host(self):
        from rubato_torch import averaging, ddp

        def averages(kind, **options):
            return (lambda model: model,
                    lambda model, optimizer: kind(model, optimizer, **options))

        for wrap, exchange in (
                (DistributedDataParallel,
                 lambda model, optimizer: ddp.PartialExchange(model, optimizer, f"quorum:{N}")),
                (DistributedDataParallel,
                 lambda model, optimizer: ddp.LaggedExchange(model, optimizer)),
                averages(averaging.PeriodicModelAverager, period=2, outer="nesterov"),
                averages(averaging.DecoupledModelAverager, period=2)):
            ends = [self.relaxed(where, wrap, exchange) for where in ("cpu", device.NAME)]
            torch.testing.assert_close(*ends, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    device.use()
    dist.init_process_group(f"cpu:rubato,{device.NAME}:rubato",
                            timeout=datetime.timedelta(seconds=60))
    result = unittest.main(exit=False).result
    if result.wasSuccessful():
        dist.destroy_process_group()
    raise SystemExit(not result.wasSuccessful())
