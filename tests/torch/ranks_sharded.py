"""ranks_sharded.py -- run as every rank of four: two replicas of models that are sharded over two
ranks each (fully_shard), and what the replicas exchange."""

import torch
from known_gradients import (MOMENTUM, RATE, Case, Linear, N, R, everyone, gradient, main, step,
                             whole)
from rubato_torch.ddp import LaggedExchange, PartialExchange
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

REPLICA = R // 2
BATCH, STEPS = 3, 8


def network():
    """Shards of different lengths, and of none: its last layer has one row."""
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 1))


def loss(model, rank, number):
    x = torch.randn(BATCH, 4, generator=torch.Generator().manual_seed(100 * number + rank))
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def means(rank, number):
    """A replica's gradient: the mean of its ranks'."""
    return (gradient(2 * rank, number) + gradient(2 * rank + 1, number)) / 2


class Sharded(Case):
    def setUp(self):
        super().setUp()
        self.mesh = init_device_mesh("cpu", (N // 2, 2), mesh_dim_names=("replica", "shard"))

    def begin(self, kind, model, momentum=MOMENTUM, **options):
        for layer in model.children():
            if list(layer.parameters()):
                fully_shard(layer, mesh=self.mesh["shard"])
        fully_shard(model, mesh=self.mesh["shard"])
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
        options = {"ledger": self.folder / "ledger", **options}
        return model, optimizer, kind(model, optimizer,
                                      process_group=self.mesh.get_group("replica"), **options)

    def plain(self, lag, max_norm, passes):
        """The same by one process that has all, without a group: the mean over all ranks of the
        gradients at the parameters of the step, applied `lag` steps later."""
        model, waiting = network(), []
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM)
        for number in range(STEPS + lag):
            if number < STEPS:
                optimizer.zero_grad()
                for some in range(passes):
                    sum(loss(model, rank, number * passes + some)
                        for rank in range(N)).div(N).backward()
                waiting.append([parameter.grad.clone() for parameter in model.parameters()])
            if number >= lag:
                for parameter, old in zip(model.parameters(), waiting.pop(0)):
                    parameter.grad = old
                if max_norm is not None:
                    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm)
                optimizer.step()
        return [parameter.detach() for parameter in model.parameters()]

    def test_parameters_are_those_of_a_plain_computation(self):
        for kind, lag, max_norm, passes, options in (
                (PartialExchange, 0, None, 1, {"policy": f"quorum:{N // 2}"}),
                (PartialExchange, 0, 0.3, 2, {"policy": f"quorum:{N // 2}"}),
                (LaggedExchange, 1, None, 1, {}),
                (LaggedExchange, 2, 0.3, 2, {"lag": 2})):
            with self.subTest(kind.__name__, lag=lag, max_norm=max_norm):
                model = network()
                if REPLICA > 0: # It is told the first one's parameters.
                    torch.nn.init.ones_(model[0].weight)
                model, optimizer, exchange = self.begin(kind, model, max_norm=max_norm, **options)
                for number in range(STEPS):
                    optimizer.zero_grad()
                    for some in range(passes):
                        loss(model, R, number * passes + some).backward()
                    optimizer.step()
                exchange.finish()
                self.assertEqual((exchange.steps, exchange.updates), (STEPS, STEPS))
                got = [whole(parameter).detach() for parameter in model.parameters()]
                torch.testing.assert_close(got, self.plain(lag, max_norm, passes), rtol=1e-4,
                                           atol=1e-6)
                self.assertEqual(len(set(everyone(b"".join(p.numpy().tobytes() for p in got)))), 1)

    def test_a_late_replica_is_not_waited_for(self):
        for kind, options in ((PartialExchange, {"policy": "solo"}),
                              (PartialExchange, {"policy": "solo", "lag_comp": "lookahead"}),
                              (PartialExchange, {"policy": "quorum:1", "rounds": "free",
                                                 "depth": 64}),
                              (LaggedExchange, {"accumulate": "until-done"})):
            with self.subTest(kind.__name__, **options):
                self.other_words()
                model, optimizer, exchange = self.begin(kind, Linear(), **options)
                self.late(6, lambda number: step(model, optimizer, number), late=(N - 2, N - 1))
                exchange.finish()
                lines = self.check(model, 8, gradient=means, each=2)
                self.assertEqual(exchange.updates, len(lines))
                # Who was there went on alone, or had long shares in few rounds.
                alone = [line for line in lines if len(line["contributions"]) == 1]
                longest = max(last - first + 1 for line in lines
                              for _, first, last in line["contributions"])
                self.assertTrue(len(alone) >= 2 or longest > 2, lines)

    def test_a_checkpoint(self):
        for kind, options in ((PartialExchange, {"policy": f"quorum:{N // 2}", "rounds": "free"}),
                              (LaggedExchange, {"lag": 2})):
            with self.subTest(kind.__name__):
                runs = [self.begin(kind, network(), ledger=None, **options) for _ in range(2)]

                def run(which, numbers):
                    model, optimizer, _ = runs[which]
                    for number in numbers:
                        optimizer.zero_grad()
                        loss(model, R, number).backward()
                        optimizer.step()

                run(0, range(7))
                path = self.folder / f"state {R}"
                torch.save([part.state_dict() for part in reversed(runs[0])], path)
                # Names of meshes and placements are in it, beside tensors.
                for part, state in zip(reversed(runs[1]), torch.load(path, weights_only=False)):
                    part.load_state_dict(state)
                ends = []
                for which in range(2):
                    run(which, range(7, 12))
                    runs[which][2].finish()
                    ends.append([whole(p).detach().numpy().tobytes()
                                 for p in runs[which][0].parameters()])
                self.assertEqual(ends[0], ends[1])

    def test_mistakes(self):
        model = network()
        fully_shard(model, mesh=self.mesh)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        with self.assertRaisesRegex(ValueError, "which ranks have the same shards"):
            PartialExchange(model, optimizer)
        with self.assertRaisesRegex(ValueError, "would wait for all replicas"):
            PartialExchange(model, optimizer, process_group=self.mesh.get_group("replica"))


if __name__ == "__main__":
    main()
