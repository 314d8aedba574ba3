"""ranks_cuda.py -- run as every rank of a job whose ranks share a CUDA device: what only a real one
can show. The values that ranks_collectives.py, ranks_devices.py and ranks_training.py expect they
expect on CUDA, too."""

import datetime
import hashlib
import unittest

import slow_device as device
import torch
import torch.distributed as dist
from slow_device import N, R, values
from torch.nn.parallel import DistributedDataParallel

REPETITIONS = 200
COUNT = 1 << 18
PRODUCED_US = 1000


def produce(number, ahead_us=PRODUCED_US):
    """What the current stream writes after some time, of which every element tells rank and
    number."""
    device.sleep(ahead_us)
    return torch.full((COUNT,), float(number % 7 + R), device="cuda")


def expected(number):
    return float(sum(number % 7 + rank for rank in range(N)))


class Cuda(unittest.TestCase):
    def tearDown(self):
        torch.cuda.synchronize()
        dist.barrier()

    def repeat(self, begin):
        """Input is produced and output consumed on one stream. The host waits for neither: what is
        wrong is counted on the device."""
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            wrong = torch.zeros((), dtype=torch.int64, device="cuda")
            for number in range(REPETITIONS):
                tensor = produce(number)
                work = begin(tensor)
                if work is not None:
                    work.wait()
                wrong += (tensor != expected(number)).sum()
            return int(wrong)

    def test_a_stream_produces_and_consumes(self):
        self.assertEqual(self.repeat(dist.all_reduce), 0)
        self.assertEqual(self.repeat(lambda tensor: dist.all_reduce(tensor, async_op=True)), 0)

    def test_without_a_wait_it_consumes_too_early(self):
        if N == 1: # Its sum is what is there already.
            return
        with torch.cuda.stream(torch.cuda.Stream()):
            tensors = [produce(number, 20 * PRODUCED_US) for number in range(5)]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            wrong = (tensors[-1] != expected(4)).sum()
        for work in works:
            work.wait()
        self.assertEqual(int(wrong), COUNT)
        for number, tensor in enumerate(tensors):
            self.assertTrue((tensor == expected(number)).all())

    def test_streams_of_their_own(self):
        """One produces, another one calls, which waits for the first."""
        first, second = torch.cuda.Stream(), torch.cuda.Stream()
        for number in range(20):
            with torch.cuda.stream(first):
                tensor = produce(number)
            with torch.cuda.stream(second):
                second.wait_stream(first)
                work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            self.assertTrue((tensor == expected(number)).all())

    def test_what_is_dropped_under_way_is_not_used_again(self):
        before = torch.cuda.memory_allocated()
        for number in range(50):
            whole = torch.empty(N * COUNT, device="cuda")
            part = produce(number)
            work = dist.all_gather_into_tensor(whole, part, async_op=True)
            del part
            others = [torch.full((COUNT,), -1.0, device="cuda") for _ in range(3)]
            work.wait()
            for rank, got in enumerate(whole.split(COUNT)):
                self.assertTrue((got == float(number % 7 + rank)).all(), (number, rank))
            del others, got, whole, work
        self.assertEqual(torch.cuda.memory_allocated(), before) # Nor is it held for good.

    def gradients(self, where):
        """Of a small network after three steps, and the loss."""
        torch.manual_seed(7)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU(),
            torch.nn.MaxPool2d(2), torch.nn.Conv2d(8, 16, 3), torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(64, 10)).to(where)
        model = DistributedDataParallel(model, bucket_cap_mb=0.002)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
        samples = torch.Generator().manual_seed(300 + R)
        for _ in range(3):
            x = torch.randn(8, 3, 16, 16, generator=samples)
            y = torch.randint(10, (8,), generator=samples)
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(x.to(where)), y.to(where))
            loss.backward()
            optimizer.step()
        return torch.cat([p.grad.cpu().reshape(-1) for p in model.parameters()]), loss.item()

    def test_a_network_is_trained_as_on_the_host(self):
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
        ends = [self.gradients(where) for where in ("cpu", "cuda")]
        torch.testing.assert_close(*ends, rtol=2e-3, atol=1e-4)
        all_bits = [None] * N
        dist.all_gather_object(all_bits, hashlib.sha256(ends[1][0].numpy().tobytes()).hexdigest())
        self.assertEqual(len(set(all_bits)), 1)

    def test_beside_nccl(self):
        """Which refuses two ranks on one device."""
        if N > 1:
            return
        group = dist.new_group(backend="cpu:rubato,cuda:nccl")
        self.assertEqual([group._get_backend(torch.device(where)).name() for where in
                          ("cpu", "cuda")], ["rubato", "nccl"])
        for where in ("cpu", "cuda"):
            tensor = values(R, (100,)).to(where)
            dist.all_reduce(tensor, group=group)
            self.assertTrue(torch.equal(tensor.cpu(), values(R, (100,))))
        dist.destroy_process_group(group)


if __name__ == "__main__":
    device.use()
    dist.init_process_group("rubato", timeout=datetime.timedelta(seconds=60))
    result = unittest.main(exit=False).result
    if result.wasSuccessful():
        dist.destroy_process_group()
    raise SystemExit(not result.wasSuccessful())
