"""Gradients of DistributedDataParallel, and of the replicas of fully_shard, that need not wait for
the slowest rank.

    model = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    exchange = PartialExchange(model, optimizer, policy="quorum:2")
    for x, y in loader:
        optimizer.zero_grad()
        loss_of(model(x), y).backward() # This rank's gradient goes to the others.
        optimizer.step()                # What has come of all is applied: once, never, or often.
    exchange.finish()

An exchange is DDP's communication hook, and hooks of the optimizer's step. After backward() .grad
is this rank's gradient. step() applies, one after the other, the rounds that have finished, as if
it had been called once for each with the round's gradient in .grad; where none has, it changes
nothing. So every rank applies the same rounds in the same order, some sooner, some later, and
after finish() all have the same parameters to the bit.

The whole gradient is in one round, so that a round has the same contributors for all parameters:
it goes out when the backward pass is over.

Of a model that is sharded within each replica (HSDP) the replicas exchange:

    mesh = init_device_mesh("cpu", (2, 4), mesh_dim_names=("replica", "shard"))
    fully_shard(model, mesh=mesh["shard"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    exchange = PartialExchange(model, optimizer, process_group=mesh.get_group("replica"))

All is as above, read "replica" for "rank", but for what goes out: .grad as it is when step() is
called, so a step may follow several backward passes. The first rank of a replica gathers its
gradient, exchanges it for the others, and hands results on (shards.py says why): it has the whole
gradient in memory as the others' vectors together would be, a ledger is rank 0's of the group of
first ranks, and `weight`, `writer` and stats() are theirs.
"""

import collections
import contextlib
import sys
import time
from typing import Any, Callable, Dict, Optional, Union

import numpy as np
import rubato
import torch
import torch.distributed as dist
from rubato.partial import CONTRIBUTION
from torch.nn.parallel import DistributedDataParallel

from .communicator import communicator
from .flat import Flat, clip, set_rate, tensor_of, write
from .shards import Shards

__all__ = ["LaggedExchange", "PartialExchange"]
_PATIENCE = 9 # A rank may be ten times as slow as the others.
_COUNT_MAX = 2**24 # Micro-batches of a rank in a round, as whole numbers of float32.
_KEPT = ("steps", "updates", "weight", "_reach") # In the state of each exchange.


def _expect(state, names):
    if set(state) != names:
        raise ValueError(f"the state of another kind of exchange: it has {sorted(state)}, and "
                         f"{sorted(names)} are expected")


def _has_plain_momentum(optimizer):
    return isinstance(optimizer, torch.optim.SGD) and all(
        group["momentum"] > 0.0 and not group["dampening"] and not group["nesterov"] and
        not group["maximize"] for group in optimizer.param_groups)


def _is_sharded(model):
    fsdp = sys.modules.get("torch.distributed.fsdp") # It takes long to import, so not for this.
    return fsdp is not None and isinstance(model, fsdp.FSDPModule)


class _Exchange:
    """What both have in common: the hooks, and the optimizer's steps."""

    def __init__(self, model, optimizer, rate, max_norm, lag_comp, ledger, writer, process_group):
        if lag_comp not in ("none", "lookahead"):
            raise ValueError(f"lag_comp is {lag_comp!r}: expected 'none' or 'lookahead'")
        if lag_comp == "lookahead" and not _has_plain_momentum(optimizer):
            raise ValueError("lag_comp is 'lookahead': it needs torch.optim.SGD with momentum in "
                             "all groups, without dampening, nesterov and maximize")
        self._flat = Flat(p for p in model.parameters() if p.requires_grad)
        self._shards: Optional[Shards] = None
        if _is_sharded(model):
            if process_group is None:
                raise ValueError("which ranks have the same shards? process_group="
                                 'mesh.get_group("replica"), say')
            self._shards = Shards(self._flat)
        else:
            self._check(model)
            process_group = process_group or model.process_group
        self.communicator = communicator(process_group)
        self._leads = self._shards is None or self._shards.leads
        self._count = self._shards.count if self._shards is not None else self._flat.count
        self.weight: int = 1
        self.steps = 0
        self.updates = 0
        self.waited = 0.0
        self._writer = writer
        self._optimizer, self._rate, self._max_norm = optimizer, rate, max_norm
        self._buffer = None # What the backward pass under way writes into.
        self._nested = self._over = False
        self._reach = 0 # Updates between the next gradient's parameters and its own, as expected.
        self._aside: Any = None # The parameters, while they look ahead.
        self._began = time.monotonic()
        self._ledger = None
        if ledger is not None and self._leads and self.communicator.rank == 0:
            self._ledger = rubato.Ledger(ledger)
        if self._shards is None:
            model.register_comm_hook(self, _Exchange._hook)
        else:
            self._begin_alike()
        self._handles = [optimizer.register_step_pre_hook(self._before),
                         optimizer.register_step_post_hook(self._after)]
        if lag_comp == "lookahead":
            self._handles.append(model.register_forward_pre_hook(self._before_forward,
                                                                 prepend=True))

    def _check(self, model):
        if not isinstance(model, DistributedDataParallel):
            raise TypeError(f"{type(model).__name__}: expected DistributedDataParallel, or a "
                            "module of fully_shard")
        if model.broadcast_buffers and any(True for _ in model.module.buffers()):
            raise ValueError("DDP would wait for all ranks in each forward pass, to broadcast "
                             "buffers: make it with broadcast_buffers=False")
        if model.find_unused_parameters:
            raise ValueError("DDP would wait for all ranks in each backward pass, to find unused "
                             "parameters: make it without find_unused_parameters")

    def _begin_alike(self):
        """All replicas begin with the first one's parameters, as DDP's ranks do."""
        start = torch.empty(self._flat.count, device="cpu")
        self._flat.read(start)
        self.communicator.broadcast(start.numpy())
        self._flat.write(start)

    weight: int
    "Of what this rank contributes from now on: samples or tokens, say."
    steps: int
    "Backward passes of this rank."
    updates: int
    "Rounds that this rank has applied."
    waited: float
    "Seconds that this rank has waited for rounds."

    def _before_forward(self, model, args):
        wanted = self._reach > 0 and model.training and torch.is_grad_enabled()
        if self._aside is None and wanted:
            self._look_ahead()

    @torch.no_grad()
    def _look_ahead(self):
        """Where the momentum of the updates still to come before this gradient's own will have
        led: x - rate (mu + mu^2 + ... + mu^reach) v."""
        self._aside = [parameter.detach().clone() for parameter in self._flat.tensors]
        for group in self._optimizer.param_groups:
            mu = group["momentum"]
            far = float(group["lr"]) * sum(mu ** (i + 1) for i in range(self._reach))
            for parameter in group["params"]:
                velocity = self._optimizer.state.get(parameter, {}).get("momentum_buffer")
                if velocity is not None:
                    parameter.sub_(velocity, alpha=far)

    @torch.no_grad()
    def _look_here(self):
        if self._aside is not None:
            for parameter, was in zip(self._flat.tensors, self._aside):
                parameter.copy_(was)
        self._aside = None

    # Of the backward pass, on a thread of autograd's.
    def _hook(self, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        if self._over:
            raise RuntimeError("a backward pass after finish()")
        if self._buffer is None:
            self._buffer = self._lease()
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients()):
            self._put(self._flat.part(self._buffer, parameter), gradient)
        if bucket.is_last():
            self._buffer = None
            self._commit()
            self.steps += 1
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def _contribute(self):
        """What the backward passes since the last step have left in .grad."""
        whole = self._shards.gather(self._flat)
        if whole is not None:
            self._put(self._lease()[:self._count], whole)
            self._commit()
        self.steps += 1

    def _before(self, optimizer, args, kwargs):
        if self._nested:
            return
        self._look_here()
        if self._shards is not None:
            self._contribute()
        if not self._next():
            self._flat.no_gradients()

    def _after(self, optimizer, args, kwargs):
        if not self._nested:
            self._apply_all(self._next)

    def _apply_all(self, another):
        self._nested = True
        try:
            while another():
                self._optimizer.step()
        finally:
            self._nested = False

    def _next(self):
        """Whether the optimizer has another update to apply: in .grad."""
        if not self._leads:
            return self._hear(0.0)
        there = self._load()
        if not there and self._shards is not None:
            self._shards.tell(None)
        return there

    def _hear(self, until):
        """The same of a rank whose leader knows."""
        vector, rate, reach = self._shards.hear(until)
        if vector is None:
            return False
        self._reach = reach
        self._flat.gradients(vector)
        set_rate(self._optimizer, rate)
        self.updates += 1
        return True

    def _give(self, vector, rate):
        """The optimizer's next step applies this, at this rate, if there is one."""
        vector = clip(vector, self._max_norm)
        if self._shards is not None:
            vector = self._shards.tell(vector, rate, self._reach)
        self._flat.gradients(vector)
        self.updates += 1
        return set_rate(self._optimizer, rate)

    def _rate_at(self, step):
        return None if self._rate is None else self._rate(step)

    def _patience(self):
        """Until when to wait for ranks that are at work still."""
        now = time.monotonic()
        return now + _PATIENCE * (now - self._began)

    def _settle(self, end):
        """`end` on who exchanges, and all that it applies on all."""
        self._look_here()
        if self._leads:
            end()
            if self._shards is not None:
                self._shards.tell(None)
        else:
            until = self._patience()
            self._apply_all(lambda: self._hear(until))

    @contextlib.contextmanager
    def _waiting(self):
        began = time.monotonic()
        try:
            yield
        finally:
            self.waited += time.monotonic() - began

    def _record(self, round, rate):
        """Of the newest update."""
        if self._ledger is not None:
            self._ledger.update(round, rate)
        write(self._writer, self.updates - 1, contributors=round.contributors, fresh=round.fresh,
              staleness=round.staleness_max, discarded=round.discarded, learning_rate=rate,
              communication_time=self.waited)

    def finish(self) -> None:
        """Collective, after the last step of each rank, however many it has made: what is on its
        way is applied. Then parameters and the optimizer's state are equal on all ranks, and the
        ledger is there."""
        if self._over:
            return
        self._settle(self._end)
        self._over = True
        for handle in self._handles:
            handle.remove()
        if self._ledger is not None:
            self._ledger.close()


class PartialExchange(_Exchange):
    """Partial exchange of gradients: a round starts when its policy says so, with the ranks that
    are there. A rank that is in time for it waits for its result; one that is too late goes on,
    and its gradient is in a later round (eager-SGD: Li et al., PPoPP 2020).

    model       DistributedDataParallel, whose parameters are equal on all ranks
    optimizer   of its parameters; any, as it is this rank's own
    policy      who starts a round: "solo", "majority", "quorum:K", "adaptive[:K]", "deadline:T";
                None: "quorum:K" with half of the ranks
    normalise   a round's sum is divided by all "ranks", by its "contributors", by the ranks
                "remaining", or by "weight": then gradients count as `exchange.weight` says, which
                is set before each backward pass
    rate        a function from the number of a step to the learning rate of the update that holds
                it, the same on all ranks, which is given to all groups of the optimizer. None:
                rates are left alone; then they must be constant, as a scheduler would give ranks
                that are not at the same step different ones
    max_norm    the longest that a round's gradient may be
    lag_comp    "lookahead": if this rank's last gradient was applied s updates after the
                parameters that it was computed on, the next one is computed where momentum will
                have led in s updates, of torch.optim.SGD with momentum: a forward pass in training
                mode moves the parameters there, and step() begins with taking them back. "none":
                where they are. None: "lookahead" where policy is adaptive, what is late is
                accumulated and the optimizer has such momentum, "none" elsewhere
    ledger      a file, which says at the end what each round held (rank 0 writes it)
    writer      of SummaryWriter's interface, on any rank: add_scalar() is called at each update,
                by its number, with "rubato/" and "contributors", "fresh", "staleness" (the
                largest, in rounds), "discarded" (so far), "learning_rate" and
                "communication_time" (seconds that this rank has waited for rounds so far)
    rounds, late, full_every, max_absence, window, depth, wire, feedback, members, seed
                as in rubato.Partial; rounds is "free" by default if policy is adaptive

    DDP's second forward pass waits for all ranks (it cuts its buckets anew), and so, with free
    rounds, does the first step. From then on nothing else that waits for all ranks may be called
    between steps. No rank gets further ahead of one that makes no steps than `depth` rounds (8).
    """

    def __init__(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer,
                 policy: Optional[str] = None, *, normalise: str = "ranks",
                 rate: Optional[Callable[[int], float]] = None, max_norm: Optional[float] = None,
                 lag_comp: Optional[str] = None, ledger: Any = None, writer: Any = None,
                 process_group: Optional[dist.ProcessGroup] = None, **options: Any):
        if "collection" in options or str(policy).startswith("wagma"):
            raise ValueError("each rank applies each round of gradients: no `collection`, no wagma")
        adaptive = str(policy).startswith("adaptive")
        if lag_comp is None:
            ahead = (adaptive and options.get("late", "accumulate") == "accumulate" and
                     _has_plain_momentum(optimizer))
            lag_comp = "lookahead" if ahead else "none"
        super().__init__(model, optimizer, rate, max_norm, lag_comp, ledger, writer, process_group)
        size = self.communicator.size
        if policy is None:
            policy = f"quorum:{(size + 1) // 2}"
        options.setdefault("rounds", "free" if adaptive else "aligned")
        self._free = options["rounds"] == "free"
        self._by_weight = normalise == "weight"
        self._made = np.zeros(size, np.uint64)
        self._begun: Dict[int, int] = {} # Updates there when a gradient was computed, by its step.
        self._options = {"policy": policy, "normalise": normalise, **options}
        self._partial = self._stats = None
        if self._leads:
            self._partial = self.communicator.partial(self._count, **self._options)
        # DDP's second forward pass waits for all ranks.
        self._unmet = self._free and self._shards is None

    def _lease(self):
        return tensor_of(self._partial.acquire())

    def _put(self, place, gradient):
        place.copy_(gradient)
        if self._by_weight:
            place.mul_(float(self.weight))

    def _commit(self):
        self._begun[self.steps] = self.updates
        self._partial.commit(self.steps, self.weight)
        self._meet()

    def _meet(self):
        if self._unmet:
            self._partial.drain()
        self._unmet = False

    def _load(self):
        """The next round's gradient, if there is one to wait for."""
        while True:
            with contextlib.ExitStack() as stack:
                with self._waiting():
                    lent = stack.enter_context(self._partial.collect_view())
                if lent is None:
                    return False
                vector, round = lent
                if round.contributors == 0: # Ranks that have drained, or wait elsewhere.
                    continue
                self._note_own(round.ranks[self.communicator.rank])
                rate = self._give(tensor_of(vector), self._rate_at(self._step_of(round)))
            self._record(round, rate)
            return True

    def _note_own(self, part):
        """How late this rank's newest gradient in the next update is."""
        if part["count"] == 0:
            return
        last = int(part["last_step"])
        self._reach = self.updates - self._begun[last]
        for step in [step for step in self._begun if step <= last]:
            del self._begun[step]

    def _step_of(self, round):
        """Whose rate an update takes: aligned rounds, the newest step in it; free ones, the mean
        step of all ranks before it."""
        there = round.ranks["count"] > 0
        last = round.ranks["last_step"]
        before = int(self._made.sum()) // self.communicator.size
        self._made = np.where(there, last + np.uint64(1), self._made)
        return before if self._free else int(last[there].max())

    def _drain(self):
        self._meet() # Others have drained in their first step.
        self._apply_all(self._load)
        self._partial.drain()
        until = self._patience()
        while True:
            try:
                self._apply_all(self._load)
                break
            except rubato.TimeoutError: # Others are at work still.
                if time.monotonic() > until:
                    raise

    def _end(self):
        self._drain()
        self._stats = self._partial.stats()
        self._partial.free()

    def state_dict(self) -> Dict[str, Any]:
        """Collective, between steps (of aligned rounds: after equally many): what is on its way is
        applied first, so take the model's and the optimizer's state afterwards. Another exchange
        goes on from the three to the same bits, where it does not depend on who is late; with
        `feedback` these are not those of a run without a checkpoint, whose rounds are others. What
        the ledger holds is not in it."""
        self._settle(self._drain)
        state = {name: getattr(self, name) for name in _KEPT}
        state["made"] = torch.from_numpy(self._made.astype(np.int64))
        state["rounds"] = None
        if self._leads:
            state["rounds"] = torch.from_numpy(np.frombuffer(self._partial.save(), np.uint8).copy())
        state["lost"] = None
        if self._feeds_back():
            state["lost"] = torch.from_numpy(self._partial.residual().copy())
            self.communicator.barrier() # The others' next rounds change it.
        return state

    def _feeds_back(self):
        """Whether this rank has what rounding lost."""
        return (self._leads and self._options.get("feedback", False) and
                self._options.get("wire", "float32") != "float32")

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Collective, before the first step: of an exchange made with the same options, on as many
        ranks; each rank has its own. The model and the optimizer are loaded before, but after this
        one was made."""
        _expect(state, {*_KEPT, "made", "rounds", "lost"})
        for name in _KEPT:
            setattr(self, name, state[name])
        self._made = state["made"].numpy().astype(np.uint64)
        if self._leads:
            self._partial.free()
            self._partial = self.communicator.partial(
                self._count, **self._options, state=state["rounds"].numpy().tobytes())
        if self._feeds_back():
            self._partial.residual()[:] = state["lost"].numpy()
            self.communicator.barrier()

    def stats(self) -> Optional[rubato.PartialStats]:
        """Counters of what this rank has committed, and what became of it. None: another one
        exchanges for it."""
        return self._stats if self._over or not self._leads else self._partial.stats()


class LaggedExchange(_Exchange):
    """Lagged exchange of gradients: all ranks' gradients of one round are added up while the next
    round's are computed, and applied `lag` rounds later (LAGA: Hakimi et al., ICDM 2021).

    accumulate  backward passes of a round; or "until-done": until the reduction before is over,
                so that ranks bring as many as they can and none waits for a slow one
    lag         rounds between a gradient and its use
    first_step  while there is no result yet, "skip" the update, or make it with a gradient of
                "zero"
    rate_by_count   the learning rate of an update times the square root of its mean number of
                gradients a rank
    lag_comp    "lookahead": gradients are computed where momentum will have led when they are
                applied, of torch.optim.SGD with momentum: a forward pass in training mode moves
                the parameters there, and step() begins with taking them back. "none": where they
                are
    model, optimizer, rate, max_norm, ledger, writer    as PartialExchange has them; rate gets this
                rank's step where all are at the same, until-done the mean step that was applied;
                staleness is in rounds, too

    A round's gradient is the mean of all that are in it, by `exchange.weight`. step() is called
    after each backward pass, whether the round is over or not.
    """

    def __init__(self, model: DistributedDataParallel, optimizer: torch.optim.Optimizer, *,
                 lag: int = 1, accumulate: Union[int, str] = 1, first_step: str = "skip",
                 rate_by_count: bool = False, lag_comp: str = "none",
                 rate: Optional[Callable[[int], float]] = None, max_norm: Optional[float] = None,
                 ledger: Any = None, writer: Any = None,
                 process_group: Optional[dist.ProcessGroup] = None):
        if first_step not in ("skip", "zero"):
            raise ValueError(f"first_step is {first_step!r}: expected 'skip' or 'zero'")
        if accumulate != "until-done" and not (isinstance(accumulate, int) and accumulate > 0):
            raise ValueError(f"accumulate is {accumulate!r}: expected a number, or 'until-done'")
        if rate_by_count and rate is None:
            raise ValueError("rate_by_count needs a rate")
        super().__init__(model, optimizer, rate, max_norm, lag_comp, ledger, writer, process_group)
        size = self.communicator.size
        self._reach = lag
        self._lag, self._accumulate, self._first_step = lag, accumulate, first_step
        self._by_count = rate_by_count
        self._until_done = accumulate == "until-done"
        # Behind the gradients, how many each rank brings: all know what an update holds.
        self._lagged = None
        if self._leads:
            self._lagged = self.communicator.lagged(self._count + size, op="sum", lag=lag)
        self._passes = self._weight = 0 # Of this round.
        self._begun = self._collected = 0
        self._done = np.zeros(size, np.uint64)
        self._full = False
        self._landed: Any = collections.deque() # Results that a checkpoint has waited for.

    def _lease(self):
        return tensor_of(self._lagged.acquire())

    def _put(self, place, gradient):
        place.add_(gradient.to(place.device), alpha=float(self.weight))

    def _commit(self):
        self._passes += 1
        self._weight += self.weight
        self._full = self._is_full()

    def _is_full(self):
        if not self._until_done:
            return self._passes >= self._accumulate
        return (self._begun - self._collected < self._lag or bool(self._landed) or
                self._passes >= _COUNT_MAX or self._lagged.test())

    def _begin(self):
        """Sends this round off with what it has, perhaps nothing."""
        self._lagged.acquire()[self._count + self.communicator.rank] = self._passes
        self._lagged.accumulate(None, self._weight)
        self._lagged.begin()
        self._begun += 1
        self._passes = self._weight = 0
        self._full = False

    def _take(self):
        """Waits for the oldest round; its gradient is the optimizer's. False: it was empty."""
        with self._waiting():
            vector, weight = self._landed.popleft() if self._landed else self._lagged.flush()
        age = min(self._collected, self._lag)
        self._collected += 1
        counts = vector[self._count:].astype(np.uint64)
        before, self._done = self._done, self._done + counts
        if weight == 0:
            return False
        rate = self._rate_at(self._rate_step())
        if self._by_count:
            rate *= (int(counts.sum()) / self.communicator.size) ** 0.5
        rate = self._give(tensor_of(vector)[:self._count] / float(weight), rate)
        self._record(self._round(before, counts, weight, age), rate)
        return True

    def _rate_step(self):
        if not self._until_done:
            return self.steps - 1
        return max(int(self._done.sum()) // self.communicator.size - 1, 0)

    def _round(self, before, counts, weight, age):
        ranks = np.zeros(len(counts), CONTRIBUTION)
        there = counts > 0
        ranks["first_step"], ranks["count"] = before, counts
        ranks["last_step"] = np.where(there, before + counts - np.uint64(1), 0)
        ranks["fresh"], ranks["member"] = there, 1
        return rubato.Round(self.updates - 1, int(there.sum()), int(there.sum()), weight,
                            float(weight), age, age, 0, ranks)

    def _load(self):
        if not self._full:
            return False
        # The oldest is waited for first: this one would take its share of the network.
        due = self._begun - self._collected == self._lag
        there = due and self._take()
        self._begin()
        if not due and self._first_step == "zero":
            nothing = torch.zeros(self._count, device="cpu")
            rate = self._give(nothing, self._rate_at(self._rate_step()))
            self._record(self._round(self._done, np.zeros_like(self._done), 1, 0), rate)
            return True
        return there

    def _after(self, optimizer, args, kwargs):
        pass # One round at a time.

    def _apply(self, there):
        if there:
            self._nested = True
            try:
                self._optimizer.step()
            finally:
                self._nested = False
        return there

    def _end(self):
        # Until-done, nobody knows how many more rounds the others will begin: a rank without
        # steps goes on with empty ones, until one was empty on all.
        more = True
        while self._until_done and more:
            if self._begun - self._collected == self._lag:
                more = self._apply(self._take())
            if more:
                self._begin()
        if self._passes > 0:
            self._begin()
        while self._collected < self._begun:
            self._apply(self._take())
        self._lagged.free()

    def _land(self):
        """What is in flight is waited for, and applied when it is due. Until-done, all begin the
        rounds that any has begun, so that all wait for the same ones."""
        if self._until_done:
            most = int(self.communicator.allreduce(np.array([self._begun], np.uint64), op="max")[0])
            while self._begun < most:
                if self._begun - self._collected == self._lag:
                    self._apply(self._take())
                self._begin()
        while len(self._landed) < self._begun - self._collected:
            vector, weight = self._lagged.flush()
            self._landed.append((vector.copy(), weight))

    _ALSO = ("_passes", "_weight", "_begun", "_collected", "_full")

    def state_dict(self) -> Dict[str, Any]:
        """Collective, between steps. Until-done, rounds that others have begun may be applied
        first: so take the model's and the optimizer's state afterwards. Another exchange goes on
        from the three, to the same bits with a number of backward passes. What the ledger holds is
        not in it."""
        self._settle(self._land)
        state = {name: getattr(self, name) for name in (*_KEPT, *self._ALSO)}
        state["done"] = torch.from_numpy(self._done.astype(np.int64))
        state["landed"] = [(torch.from_numpy(vector.copy()), weight)
                           for vector, weight in self._landed]
        state["sum"] = self._lease().clone() if self._passes > 0 else None
        return state

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Before the first step: of an exchange made with the same options, on as many ranks; each
        rank has its own. The model and the optimizer are loaded before, but after this one was
        made."""
        _expect(state, {*_KEPT, *self._ALSO, "done", "landed", "sum"})
        for name in (*_KEPT, *self._ALSO):
            setattr(self, name, state[name])
        self._done = state["done"].numpy().astype(np.uint64)
        self._landed = collections.deque((vector.numpy(), weight)
                                         for vector, weight in state["landed"])
        if state["sum"] is not None:
            self._lease().copy_(state["sum"])
