"""ranks_training.py -- run as every rank of four: what rubato_torch promises where ranks differ."""

import collections
import datetime
import os
import unittest

import numpy as np
import torch
import torch.distributed as dist
from known_gradients import (LENGTH, MOMENTUM, RATE, Case, Linear, N, R, everyone, gradient, main,
                             step)
from rubato_torch.averaging import (AdaptivePeriodModelAverager, DecoupledModelAverager,
                                    HierarchicalModelAverager, PeriodicModelAverager)
from rubato_torch.communicator import communicator
from rubato_torch.ddp import LaggedExchange, PartialExchange
from rubato_torch.sampler import SharedWorkSampler
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

LATE = N - 1
not_late = unittest.skipIf("LATE_DEVICE" in os.environ,
                                      "the late device saves nothing and keeps no statistics")


class Scalars:
    """Stands for torch.utils.tensorboard.SummaryWriter: what it was told, by tag and step."""

    def __init__(self):
        self.told = collections.defaultdict(dict)

    def add_scalar(self, tag, value, step):
        assert tag.startswith("rubato/") and step not in self.told[tag[7:]]
        self.told[tag[7:]][step] = value


class Training(Case):
    def begin(self, kind, **options):
        inner = Linear()
        model = DistributedDataParallel(inner, bucket_cap_mb=1e-5)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        return inner, model, optimizer, kind(model, optimizer, ledger=self.folder / "ledger",
                                             **options)

    def test_a_late_rank_is_not_waited_for(self):
        # Free rounds: as many as the others make steps, altogether, and a quorum may want the late
        # one in the last.
        for policy, options in (("solo", {}), (f"quorum:{N - 1}", {}),
                                ("solo", {"rounds": "free", "depth": 64}),
                                ("deadline:1ms", {"normalise": "contributors"}),
                                ("quorum:2", {"wire": "bfloat16", "feedback": True})):
            with self.subTest(policy, **options):
                self.other_words()
                inner, model, optimizer, exchange = self.begin(PartialExchange, policy=policy,
                                                               **options)
                self.late(6, lambda number: step(model, optimizer, number))
                updates = exchange.updates
                exchange.finish()
                by = options.get("normalise")
                lines = self.check(inner, 8, divisor=lambda line:
                                   len(line["contributions"]) if by else N)
                self.assertEqual(exchange.updates, len(lines))
                without = [line for line in lines if LATE not in
                           [rank for rank, _, _ in line["contributions"]]]
                self.assertGreaterEqual(len(without), 2)
                if R != LATE:
                    self.assertGreaterEqual(updates, 3)
                stats = exchange.stats()
                self.assertEqual((stats.committed, stats.delivered, stats.pending), (8, 8, 0))

    def test_a_late_rank_looks_ahead(self):
        """Its next gradient is computed where momentum will have led in as many updates as its
        last one, by the ledger, was late; the others', where the parameters are. Its third one is
        in the others' ninth round, which it sees at work."""
        inner, model, optimizer, exchange = self.begin(PartialExchange, policy="solo",
                                                       lag_comp="lookahead")
        seen, where, begun, furthest = [], [], [], 0
        inner.register_forward_pre_hook(lambda *_: seen.append(inner.flat()))

        others = [rank for rank in range(N) if rank != LATE]

        def run(number):
            if R == LATE and number == 3:
                self.store.set(self.word("late by six"), "")
                self.store.wait([self.word(f"ninth of {rank}") for rank in others])
            state = [optimizer.state.get(p, {}).get("momentum_buffer") for p in inner.parameters()]
            velocity = np.zeros(LENGTH) if None in state else torch.cat(
                [buffer.view(-1) for buffer in state]).cpu().numpy().copy()
            where.append((inner.flat(), velocity))
            begun.append(exchange.updates)
            with torch.no_grad(): # Moves nothing.
                model(torch.from_numpy(gradient(R, number)))
                np.testing.assert_array_equal(seen.pop(), where[-1][0])
            step(model, optimizer, number)

        self.late(6, run)
        if R != LATE:
            self.store.wait([self.word("late by six")])
        run(8)
        self.store.set(self.word(f"ninth of {R}"), "")
        exchange.finish()
        lines = self.check(inner, 9)
        self.assertIn([LATE, 2, 2], lines[8]["contributions"])
        own = [(index, last) for index, line in enumerate(lines)
               for rank, _, last in line["contributions"] if rank == R]
        for number, (there, velocity) in enumerate(where):
            applied = [index - begun[last] for index, last in own if index < begun[number]]
            late = applied[-1] if applied else 0
            far = RATE * sum(MOMENTUM ** (i + 1) for i in range(late))
            np.testing.assert_allclose(seen[number], there - far * velocity, rtol=1e-5, atol=1e-5)
            furthest = max(furthest, np.abs(seen[number] - there).max())
        if R == LATE:
            self.assertGreater(furthest, 0.1)

    def test_who_looks_ahead(self):
        for policy, options, momentum, ahead in (
                ("adaptive", {}, 0.5, True), ("adaptive:1", {"lag_comp": "none"}, 0.5, False),
                ("adaptive", {}, 0.0, False), ("adaptive", {"late": "latest"}, 0.5, False),
                ("solo", {}, 0.5, False), ("solo", {"lag_comp": "lookahead"}, 0.5, True)):
            with self.subTest(policy, momentum=momentum, **options):
                model = DistributedDataParallel(Linear())
                optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
                exchange = PartialExchange(model, optimizer, policy, **options)
                self.assertEqual(len(model._forward_pre_hooks), ahead)
                exchange.finish()

    def test_policies_that_may_wait(self):
        for policy in ("majority", "adaptive", "adaptive:1"):
            with self.subTest(policy):
                inner, model, optimizer, exchange = self.begin(PartialExchange, policy=policy)
                for number in range(9):
                    step(model, optimizer, number)
                exchange.finish()
                self.check(inner, 9)

    def test_ranks_make_different_numbers_of_steps(self):
        inner, model, optimizer, exchange = self.begin(PartialExchange, policy="solo",
                                                       rounds="free")
        for number in range(2 + 3 * R):
            step(model, optimizer, number)
        exchange.finish()
        self.check(inner, 2 + 3 * R)

    def test_weights(self):
        inner, model, optimizer, exchange = self.begin(PartialExchange, policy=f"quorum:{N}",
                                                       normalise="weight")
        for number in range(5):
            exchange.weight = R + 1
            step(model, optimizer, number)
        exchange.finish()
        self.check(inner, 5, lambda rank: rank + 1, lambda line: N * (N + 1) // 2)

    def test_lagged_weights(self):
        inner, model, optimizer, exchange = self.begin(LaggedExchange, lag=2)
        for number in range(5):
            exchange.weight = R + 1
            step(model, optimizer, number)
        exchange.finish()
        self.check(inner, 5, lambda rank: rank + 1, lambda line: N * (N + 1) // 2)

    def test_lagged_until_done(self):
        """A round takes what the ranks have: the late one's is long on the others."""
        inner, model, optimizer, exchange = self.begin(LaggedExchange, accumulate="until-done")
        self.late(6, lambda number: step(model, optimizer, number))
        exchange.finish()
        lines = self.check(inner, 8)
        # Each round holds something of all or is of the end: the others' steps are in few.
        shares = [last - first + 1 for line in lines for rank, first, last in
                  line["contributions"] if rank != LATE]
        self.assertGreater(max(shares), 2)

    def test_samples_go_to_whoever_is_there(self):
        for options in ({}, {"shuffle": False}):
            batches, rows = 30, list(range(30 * 2 + 1))
            sampler = SharedWorkSampler(rows, 2, seed=3, **options)
            loader = DataLoader(rows, batch_sampler=sampler)
            seen = collections.defaultdict(list)
            for epoch in range(3):
                for number, batch in enumerate(loader):
                    seen[epoch].append(tuple(batch.tolist()))
                    if epoch == 0:
                        # The late one has drawn its second, too, and no more.
                        if R == LATE and number == 0:
                            self.store.wait([self.word(f"{options} all")],
                                            datetime.timedelta(seconds=60))
                        elif R != LATE and self.store.add(self.word(f"{options} n"),
                                                          1) == batches - 2:
                            self.store.set(self.word(f"{options} all"), "")
            sampler.leave()
            for epoch in range(3):
                of_all = [batch for part in everyone(seen[epoch]) for batch in part]
                self.assertEqual(len(of_all), batches)
                drawn = [row for batch in of_all for row in batch]
                self.assertEqual(len(set(drawn)), 2 * batches)
                if options:
                    self.assertEqual(sorted(drawn), rows[:-1])
            if R == LATE:
                self.assertEqual(len(seen[0]), 2)
            orders = everyone([seen[0], seen[1]])
            if not options:
                self.assertNotEqual(sorted(b for part in orders for b in part[0]),
                                    sorted(b for part in orders for b in part[1]))

    def test_shared_work_is_trained_with(self):
        inner, model, optimizer, exchange = self.begin(PartialExchange, policy="quorum:2",
                                                       rounds="free", normalise="weight")
        sampler = SharedWorkSampler(range(60), 2, shuffle=False)
        number = 0
        for _ in range(2):
            for rows in sampler:
                if R == LATE and number == 2: # The others have made seven steps.
                    self.store.wait([self.word("seven")], datetime.timedelta(seconds=60))
                elif R != LATE and number > 1 and self.store.add(self.word("steps"), 1) == 7:
                    self.store.set(self.word("seven"), "")
                exchange.weight = len(rows)
                step(model, optimizer, number)
                number += 1
        sampler.leave()
        exchange.finish()
        self.assertEqual(sum(everyone(number)), 60)
        self.check(inner, number, lambda rank: 2)

    def averaged(self, kind, steps, weight=None, **options):
        """Local steps by the gradients that are known, at a rate that makes no whole numbers."""
        model = Linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        averager = kind(model, optimizer, ledger=self.folder / "ledger", **options)
        for number in range(steps):
            step(model, optimizer, number)
            if weight is not None:
                averager.weight = weight
            averager.step()
        averager.finish()
        self.assertEqual(len(set(everyone(model.flat().tobytes()))), 1)
        return model.flat()

    def test_averages_by_weight(self):
        got = self.averaged(PeriodicModelAverager, 6, R * 10 + 1, period=3, weighted=True)
        w, total = np.zeros(LENGTH), sum(r * 10 + 1 for r in range(N))
        for begin in (0, 3):
            w = sum((r * 10 + 1) / total * (w - 0.3 * sum(gradient(r, begin + i) for i in range(3)))
                    for r in range(N))
        np.testing.assert_allclose(got, w, rtol=1e-5, atol=1e-5)
        self.assertEqual([line["step"] for line in self.ledger()], [3, 6])

    def test_a_late_rank_is_waited_for_a_period_later(self):
        """While it stands still, the others take a whole period after the mean that wants it."""
        model = Linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
        averager = DecoupledModelAverager(model, optimizer, period=3, pull=0.5,
                                          ledger=self.folder / "ledger")

        def run(number):
            step(model, optimizer, number)
            averager.step()

        self.late(3, run) # The mean after step 3 wants what it is at after its third step.
        for number in range(5, 9):
            run(number)
        averager.finish()
        self.assertEqual(len(set(everyone(model.flat().tobytes()))), 1)
        np.testing.assert_allclose(model.flat(), self.decoupled(9, 3, 0.5, np.full(N, 1 / N)),
                                   rtol=1e-5, atol=1e-5)
        self.assertEqual([(line["step"], line["period"]) for line in self.ledger()],
                         [(3, 3), (6, 3), (9, 3)])

    @staticmethod
    def decoupled(steps, period, pull, share):
        """Where the ranks must end, who weigh so much."""
        x, z, mean = np.zeros((N, LENGTH)), np.zeros(LENGTH), None
        for number in range(steps):
            x -= 0.3 * np.array([gradient(rank, number) for rank in range(N)])
            if (number + 1) % period == 0:
                z = z if mean is None else mean
                x += pull * (z - x)
                mean = share @ x
        if steps % period != 0: # What was in flight.
            x += pull * (mean - x)
        return share @ x

    def test_decoupled_averages_by_weight(self):
        share = np.array([r * 10 + 1 for r in range(N)]) / sum(r * 10 + 1 for r in range(N))
        for steps in (5, 6):
            got = self.averaged(DecoupledModelAverager, steps, R * 10 + 1, period=2, pull=0.6,
                                weighted=True)
            np.testing.assert_allclose(got, self.decoupled(steps, 2, 0.6, share), rtol=1e-5,
                                       atol=1e-5)

    def test_averages_in_fewer_bits(self):
        exact = self.averaged(PeriodicModelAverager, 12, period=2)
        for wire, most in (("bfloat16", 0.2), ("int8", 0.5)):
            for kind, options in ((PeriodicModelAverager, {"period": 2}),
                                  (HierarchicalModelAverager, {"k1": 1, "k2": 4,
                                                               "group_size": 2})):
                got = self.averaged(kind, 12, wire=wire, **options)
                self.assertLess(np.abs(got - exact).max(), most)
                self.assertGreater(np.abs(got - exact).max(), 0)

    @not_late
    def test_averages_go_on_from_a_checkpoint(self):
        for kind, options in (
                (PeriodicModelAverager, {"period": 3, "outer": "nesterov"}),
                (PeriodicModelAverager, {"period": 2, "outer": "slowmo", "opt_state": "average"}),
                (PeriodicModelAverager, {"period": 3, "wire": "int8"}),
                (HierarchicalModelAverager, {"k1": 2, "k2": 6, "group_size": 2, "outer": "block",
                                             "wire": "bfloat16"}),
                (AdaptivePeriodModelAverager, {"sample_steps": 4, "period": 2}),
                (DecoupledModelAverager, {"period": 2, "outer": "slowmo", "wire": "bfloat16"}),
                (DecoupledModelAverager, {"period": 9, "pull": 0.4})):
            def begin():
                model = Linear()
                optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
                return model, optimizer, kind(model, optimizer, **options)

            def run(run, numbers):
                for number in numbers:
                    step(run[0], run[1], number)
                    run[2].step()

            with self.subTest(kind.__name__, **options):
                whole, first, second = begin(), begin(), begin()
                run(whole, range(16))
                run(first, range(9))
                path = self.folder / f"state {R}"
                torch.save([part.state_dict() for part in first], path)
                for part, state in zip(second, torch.load(path)):
                    part.load_state_dict(state)
                run(second, range(9, 16))
                for done in whole, second:
                    done[2].finish()
                self.assertEqual(second[0].flat().tobytes(), whole[0].flat().tobytes())
                self.assertEqual(second[2].averages, whole[2].averages)
                self.assertGreater(whole[2].averages, 1)
        with self.assertRaisesRegex(ValueError, "another kind of averager"):
            PeriodicModelAverager(Linear()).load_state_dict(first[2].state_dict())

    @not_late
    def test_exchanges_go_on_from_a_checkpoint(self):
        """Bits are those of the run that was not interrupted, which made a checkpoint, too; and of
        one that made none."""
        for kind, options in (
                (PartialExchange, {"policy": f"quorum:{N}", "normalise": "weight"}),
                (PartialExchange, {"policy": f"quorum:{N}", "rounds": "free"}),
                (PartialExchange, {"policy": f"quorum:{N}", "wire": "int8", "feedback": True}),
                (LaggedExchange, {"lag": 2}),
                (LaggedExchange, {"lag": 2, "lag_comp": "lookahead"}),
                (LaggedExchange, {"lag": 2, "accumulate": 4, "first_step": "zero"})):
            def begin():
                model = DistributedDataParallel(Linear(), bucket_cap_mb=1e-5)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.3, momentum=0.9)
                return model, optimizer, kind(model, optimizer, **options)

            def run(run, numbers):
                for number in numbers:
                    run[2].weight = R + 1
                    step(run[0], run[1], number)

            with self.subTest(kind.__name__, **options):
                whole, first, second = begin(), begin(), begin()
                run(whole, range(16))
                run(first, range(9))
                path = self.folder / f"state {R}"
                torch.save([part.state_dict() for part in reversed(first)], path)
                for part, state in zip(second, reversed(torch.load(path))):
                    part.load_state_dict(state)
                run(second, range(9, 16))
                run(first, range(9, 16))
                ends = []
                for model, _, exchange in (whole, first, second):
                    exchange.finish()
                    ends.append((model.module.flat().tobytes(), exchange.steps, exchange.updates))
                self.assertEqual(ends[2], ends[1])
                if not options.get("feedback"): # A checkpoint's own round hands on what was lost.
                    self.assertEqual(ends[1], ends[0])
                self.assertEqual(len(set(everyone(ends[0]))), 1)
                self.assertGreater(ends[0][2], 2)
        with self.assertRaisesRegex(ValueError, "another kind of exchange"):
            begin()[2].load_state_dict({"steps": 1})

    def test_what_waits_is_in_the_checkpoint(self):
        """Ranks of different numbers of steps: what is on its way is applied first."""
        for kind, options in ((PartialExchange, {"policy": "solo", "rounds": "free"}),
                              (LaggedExchange, {"accumulate": "until-done"})):
            with self.subTest(kind.__name__):
                self.other_words()
                inner, model, optimizer, exchange = self.begin(kind, **options)
                for number in range(4 + R):
                    step(model, optimizer, number)
                state = exchange.state_dict()
                self.assertEqual(len(set(everyone(inner.flat().tobytes()))), 1)
                for number in range(4 + R, 6 + R):
                    step(model, optimizer, number)
                exchange.finish()
                self.check(inner, 6 + R)
                self.assertEqual(state["steps"], 4 + R)

    def test_a_writer_is_told_of_updates(self):
        """What the ledger says of each, and how late what is in it was."""
        for kind, options in ((PartialExchange, {"policy": "quorum:2"}), (LaggedExchange,
                                                                          {"lag": 2})):
            with self.subTest(kind.__name__):
                self.other_words()
                writer = Scalars()
                _, model, optimizer, exchange = self.begin(kind, writer=writer, **options)
                if kind is PartialExchange:
                    self.late(6, lambda number: step(model, optimizer, number))
                else:
                    for number in range(5):
                        step(model, optimizer, number)
                exchange.finish()
                told, lines = writer.told, self.ledger()
                numbers = list(range(len(lines)))
                self.assertEqual({tag: sorted(values) for tag, values in told.items()},
                                 {tag: numbers for tag in (
                                     "contributors", "fresh", "staleness", "discarded",
                                     "learning_rate", "communication_time")})
                for number, line in enumerate(lines):
                    self.assertEqual(told["contributors"][number], len(line["contributions"]))
                    self.assertEqual(told["fresh"][number], len(line["fresh"]))
                    self.assertEqual(told["learning_rate"][number], RATE)
                waited = list(told["communication_time"].values())
                self.assertEqual(waited, sorted(waited))
                self.assertEqual(waited[-1] > 0, exchange.waited > 0)
                late = list(told["staleness"].values())
                if kind is LaggedExchange:
                    self.assertEqual(late, [0, 1, 2, 2, 2])
                else: # The late rank's third gradient came when others had made theirs.
                    self.assertGreaterEqual(max(late), 2)

    def test_a_writer_is_told_of_averages(self):
        writer = Scalars()
        self.averaged(AdaptivePeriodModelAverager, 12, sample_steps=4, period=2, writer=writer)
        periods = {line["step"]: line["period"] for line in self.ledger()}
        self.assertEqual(writer.told["period"], periods)
        self.assertEqual(set(writer.told["contributors"].values()), {N})
        self.assertEqual(set(writer.told["learning_rate"].values()), {0.3})
        self.assertGreater(min(writer.told["spread"].values()), 0)
        self.assertGreater(max(writer.told["communication_time"].values()), 0)
        writer = Scalars()
        self.averaged(HierarchicalModelAverager, 4, k1=1, k2=2, group_size=2, writer=writer)
        self.assertEqual(writer.told["period"], {2: 2, 4: 2})
        self.assertEqual(writer.told["local_period"], {1: 1, 3: 1})
        self.assertEqual(set(writer.told["local_contributors"].values()), {2})

    @not_late
    def test_averages_of_buffers(self):
        model = torch.nn.BatchNorm1d(3)
        averager = PeriodicModelAverager(model, period=1)
        model(torch.full((4, 3), float(R)) + torch.arange(4).view(4, 1))
        averager.step()
        expected = 0.1 * (1.5 + (N - 1) / 2)
        torch.testing.assert_close(model.running_mean, torch.full((3,), expected))

    def test_groups(self):
        """Of a process group of some ranks, numbered as they are there."""
        ranks = list(range(0, N, 2))
        group = dist.new_group(ranks, backend="gloo")
        if R in ranks:
            comm = communicator(group)
            self.assertEqual((comm.rank, comm.size), (ranks.index(R), len(ranks)))
            self.assertIs(comm, communicator(group))
            self.assertIsNot(comm, communicator())
            self.assertEqual(comm.allreduce(np.array([R], np.int32))[0], sum(ranks))

    def test_one_dimension_of_a_mesh(self):
        """Replicas exchange gradients, the shards beside them nothing."""
        mesh = init_device_mesh("cpu", (N // 2, 2), mesh_dim_names=("replica", "shard"))
        group = mesh.get_group("replica")
        inner = Linear()
        model = DistributedDataParallel(inner, process_group=group)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        exchange = PartialExchange(model, optimizer, policy=f"quorum:{N // 2}")
        for number in range(4):
            step(model, optimizer, number)
        exchange.finish()
        replicas = dist.get_process_group_ranks(group)
        self.assertEqual(replicas, list(range(R % 2, N, 2)))
        mean = sum(gradient(rank, number) for rank in replicas for number in range(4))
        np.testing.assert_allclose(inner.flat(), -RATE * mean / len(replicas), rtol=1e-5)

    def test_mistakes(self):
        model, plain = DistributedDataParallel(Linear()), Linear()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        norm = DistributedDataParallel(torch.nn.BatchNorm1d(3))
        for wrong, error, text in (
                (lambda: PartialExchange(plain, optimizer), TypeError, "DistributedDataParallel"),
                (lambda: PartialExchange(norm, optimizer), ValueError, "broadcast_buffers=False"),
                (lambda: PartialExchange(model, optimizer, "wagma:2"), ValueError, "wagma"),
                (lambda: LaggedExchange(model, optimizer, first_step="x"), ValueError,
                 "expected 'skip' or 'zero'"),
                (lambda: LaggedExchange(model, optimizer, lag_comp="lookahead"), ValueError,
                 "SGD with momentum"),
                (lambda: PeriodicModelAverager(model), TypeError, "the model itself"),
                (lambda: PeriodicModelAverager(plain, outer="slowmo"), ValueError, "optimizer"),
                (lambda: DecoupledModelAverager(plain, pull=0), ValueError, "pull is 0"),
                (lambda: DecoupledModelAverager(plain, outer="nesterov"), ValueError, "anchor"),
                (lambda: DecoupledModelAverager(plain, optimizer, opt_state="average"),
                 ValueError, "would come late"),
                (lambda: SharedWorkSampler(range(4), 2), ValueError, "2 batches")):
            with self.assertRaisesRegex(error, text):
                wrong()
        dist.barrier()


if __name__ == "__main__":
    main()
