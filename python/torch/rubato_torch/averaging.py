"""Averages of models: each rank takes steps of its own, and now and then all go on from the mean.

    averager = PeriodicModelAverager(model, optimizer, period=8, outer="nesterov")
    for x, y in loader:
        optimizer.zero_grad()
        loss_of(model(x), y).backward() # Of the model itself, without DDP.
        optimizer.step()
        averager.step()                 # Every eighth one averages.
    averager.finish()

The equations are those of rubato-train (docs/trainer.md), which the tests hold this to. All ranks
take equally many steps, and begin with rank 0's parameters. Parameters are averaged, and buffers
of floating point beside them (statistics of batch normalisation), and with opt_state="average" the
optimizer's state of the parameters' shapes.

Options of all of them:

    process_group   whose ranks; None: all
    outer           how the global model w moves, given the mean of the ranks' models: "none", to
                    the mean; "block" momentum (Chen, Huo, ICASSP 2016; Cong, Yang, Zhou,
                    ICPP-W 2019); "slowmo" (Wang et al., ICLR 2020); "nesterov" (with
                    nesterov_base="shifted", momentum 0.9 and lr 0.7: DiLoCo, Douillard et al.,
                    2023)
    outer_momentum, outer_lr, outer_gain ("1", "1-mu"), nesterov_base ("unshifted", "shifted")
                    of these
    opt_state       the optimizer's state at an average: "local" stays, "average" is averaged too,
                    "reset" begins anew
    wire            how parameters travel: "float32", "bfloat16", "int8", with error feedback
    weighted        the mean is weighted by `averager.weight`, which each rank sets before step():
                    the samples or tokens since the last average, say
    ledger          a file, which says at the end which models were averaged, when (rank 0 writes
                    it)
    writer          of SummaryWriter's interface, on any rank: add_scalar() is called at each
                    average that the rank is in, by its steps, with "rubato/" and "contributors"
                    (ranks), "period" (steps since the last average), "learning_rate" and
                    "communication_time" (seconds that this rank has waited for averages so far);
                    in a group "rubato/local_..."; of an adaptive period also "spread"
"""

import time
from typing import Any, Dict, List, Optional

import numpy as np
import rubato
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from . import communicator as communicators
from .communicator import communicator
from .flat import Flat, tensor_of, write

__all__ = ["AdaptivePeriodModelAverager", "DecoupledModelAverager", "HierarchicalModelAverager",
           "PeriodicModelAverager"]
_OUTER = ("none", "block", "slowmo", "nesterov")


class _Mean:
    """The mean of the ranks' vectors: `count` elements that may be rounded on the way, and `rest`
    that are not."""

    def __init__(self, comm, count, rest, wire, weighted):
        # The weight rides along as the last element, so that nobody need wait to learn the sum.
        vector = comm.alloc(count + rest + weighted)
        whole = torch.from_numpy(vector)
        self.tensor = whole[:count + rest]
        self._weight = whole[count + rest:]
        self._rounded, self._operations, exact = None, [], vector
        if wire != "float32":
            comm.set_wire(wire, feedback=True)
            part, exact = vector[:count], vector[count:]
            self._rounded = comm.op_allreduce(part, out=part, op="avg")
            self._operations.append(self._rounded)
            comm.set_wire("float32")
        if len(exact) > 0:
            self._operations.append(comm.op_allreduce(exact, out=exact, op="avg"))

    def start(self, weight):
        """The vector is the operations' until wait()."""
        if len(self._weight) > 0:
            self.tensor.mul_(float(weight))
            self._weight.fill_(float(weight))
        for operation in self._operations:
            operation.start()

    def wait(self):
        for operation in self._operations:
            operation.wait()
        if len(self._weight) > 0:
            mean = float(self._weight[0])
            if not mean > 0.0:
                raise ValueError("an average of models of weight 0 altogether")
            self.tensor.div_(mean)

    def lost(self):
        """What rounding has lost, to be read and written; None: nothing is rounded."""
        return None if self._rounded is None else torch.from_numpy(self._rounded.residual())


class _Outer:
    """The global model and its velocity (trainer/rules/outer.h)."""

    def __init__(self, kind, momentum, lr, gain, base, keep, start):
        if kind not in _OUTER:
            raise ValueError(f"outer is {kind!r}: expected one of {', '.join(map(repr, _OUTER))}")
        if gain not in ("1", "1-mu"):
            raise ValueError(f"outer_gain is {gain!r}: expected '1' or '1-mu'")
        if base not in ("unshifted", "shifted"):
            raise ValueError(f"nesterov_base is {base!r}: expected 'unshifted' or 'shifted'")
        self.kind, self._momentum, self._lr, self._shifted = kind, momentum, lr, base == "shifted"
        self._gain = 1.0 if gain == "1" else 1.0 - momentum
        self.model = start.clone() if keep or kind != "none" else None
        self._velocity = torch.zeros_like(start) if kind != "none" else None

    def adopt(self, mean):
        """The mean as it is. Returns where local steps go on."""
        if self.model is not None:
            self.model.copy_(mean)
        return mean

    def move(self, mean, rate):
        """`rate`: of the last local step. Returns where local steps go on."""
        if self.kind == "none" or self.kind == "slowmo" and not rate > 0.0:
            return self.adopt(mean)
        w, v, mu = self.model, self._velocity, self._momentum
        v.mul_(mu)
        if self.kind == "slowmo":
            v.add_((w - mean) / rate)
            w.sub_(v, alpha=self._lr * rate)
        elif self.kind == "nesterov" and self._shifted:
            d = (mean - w).mul_(self._gain)
            v.add_(d)
            w.add_(d.add_(v, alpha=mu), alpha=self._lr)
        else:
            v.add_(mean - w, alpha=self._lr * self._gain)
            w.add_(v)
            if self.kind == "nesterov":
                return w + mu * v
        return w


class _Averager:
    """What all have in common."""

    def __init__(self, model, optimizer, process_group, outer, outer_momentum, outer_lr,
                 outer_gain, nesterov_base, opt_state, wire, weighted, ledger, writer,
                 keep=False):
        if isinstance(model, DistributedDataParallel):
            raise TypeError("DDP averages gradients in each step: pass the model itself")
        if opt_state not in ("local", "average", "reset"):
            raise ValueError(f"opt_state is {opt_state!r}: expected 'local', 'average' or 'reset'")
        if optimizer is None and (outer == "slowmo" or opt_state != "local"):
            raise ValueError("this needs the optimizer")
        self._comm = communicator(process_group)
        self._optimizer, self._opt_state, self._wire = optimizer, opt_state, wire
        self._flat = Flat(p for p in model.parameters() if p.requires_grad)
        self._buffers = Flat(b for b in model.buffers() if b.is_floating_point())
        self._means: List[_Mean] = []
        self._mean: Optional[_Mean] = None
        self.steps = self._last = self.averages = 0
        self.weight = 1
        self._weighted = weighted
        start = np.empty(self._flat.count + self._buffers.count, np.float32)
        self._fill(torch.from_numpy(start))
        self._comm.broadcast(start)
        self._put(torch.from_numpy(start))
        self._outer = _Outer(outer, outer_momentum, outer_lr, outer_gain, nesterov_base,
                             keep or wire != "float32",
                             torch.from_numpy(start)[:self._flat.count])
        self.waited, self._writer = 0.0, writer
        self._ledger = None
        if ledger is not None and self._comm.rank == 0:
            self._ledger = rubato.Ledger(ledger)
        communicators._users.add(self)

    steps: int
    "Local steps of this rank."
    averages: int
    "Averages that this rank was in."
    weight: int
    "Of this rank's model in the next average, where it is weighted."
    waited: float
    "Seconds that this rank has waited for averages."

    def _fill(self, vector):
        self._flat.read(vector[:self._flat.count])
        self._buffers.read(vector[self._flat.count:][:self._buffers.count])

    def _put(self, vector):
        self._flat.write(vector[:self._flat.count])
        self._buffers.write(vector[self._flat.count:][:self._buffers.count])

    def _states(self) -> List[Dict[str, Any]]:
        """The optimizer's state of each parameter that has one."""
        states = [self._optimizer.state.get(p) for p in self._flat.tensors]
        return [state for state in states if state]

    def _state_tensors(self):
        if self._opt_state != "average":
            return []
        return [state[name] for state in self._states() for name in sorted(state)
                if torch.is_tensor(state[name]) and state[name].dim() > 0]

    def _made(self, comm):
        """A vector to average in, made when the optimizer has its state."""
        rest = self._buffers.count + sum(t.numel() for t in self._state_tensors())
        self._means.append(_Mean(comm, self._flat.count, rest, self._wire, self._weighted))
        return self._means[-1]

    @torch.no_grad()
    def _begin(self, mean, reference):
        """Starts the mean over its ranks; `reference`: what they have in common, from which they
        tell each other the way, the same in _end()."""
        count = self._flat.count
        self._fill(mean.tensor)
        if reference is not None:
            mean.tensor[:count].sub_(reference)
        Flat(self._state_tensors()).read(mean.tensor[count + self._buffers.count:])
        self._way(mean.tensor[:count])
        mean.start(self.weight)

    @torch.no_grad()
    def _end(self, mean, reference):
        """It is in mean.tensor."""
        count, began = self._flat.count, time.monotonic()
        mean.wait()
        self.waited += time.monotonic() - began
        self._square = float(torch.linalg.vector_norm(mean.tensor[:count],
                                                      dtype=torch.float64)) ** 2
        if reference is not None:
            mean.tensor[:count].add_(reference)

    @torch.no_grad()
    def _run(self, mean, reference):
        """Both, and all but the parameters become their mean."""
        self._begin(mean, reference)
        self._end(mean, reference)
        rest = mean.tensor[self._flat.count:]
        self._buffers.write(rest[:self._buffers.count])
        Flat(self._state_tensors()).write(rest[self._buffers.count:])
        self._reset()
        self.averages += 1

    @torch.no_grad()
    def _reset(self):
        if self._opt_state != "reset":
            return
        for state in self._states():
            for value in state.values():
                if torch.is_tensor(value):
                    value.zero_()

    def _way(self, way):
        """What a schedule wants to know of it."""

    def _rate(self):
        return float(self._optimizer.param_groups[0]["lr"]) if self._optimizer else 0.0

    @torch.no_grad()
    def _average_all(self, plain=False):
        if self._mean is None:
            self._make("mean")
        self._run(self._mean, self._outer.model
                  if self._wire != "float32" or self._outer_needed() else None)
        mean = self._mean.tensor[:self._flat.count]
        self._flat.write(self._outer.adopt(mean) if plain else
                         self._outer.move(mean, self._rate()))
        self._averaged(self.steps)

    def _outer_needed(self):
        return self._outer.model is not None

    def _averaged(self, steps):
        """The global model has moved by the ranks' models after so many steps."""
        self._record(range(self._comm.size), "global", steps, self._last)
        self._last = steps

    def _record(self, ranks, scope, steps, last):
        if self._ledger is not None:
            self._ledger.average(ranks, steps, steps - last, scope)
        if self._comm.rank in ranks:
            write(self._writer, steps, "" if scope == "global" else "local_",
                  contributors=len(ranks), period=steps - last,
                  learning_rate=self._rate() if self._optimizer else None,
                  communication_time=self.waited)

    def step(self) -> None:
        """After each step of the optimizer. Averages where one is due: then it waits for all."""
        self.steps += 1
        self._step()

    def state_dict(self) -> Dict[str, Any]:
        """Of this rank, between steps: with those of its model and its optimizer what another
        averager goes on from, to the same bits. What the ledger holds is not in it."""
        def kept(tensor):
            return None if tensor is None else tensor.clone()

        state = {name: getattr(self, name) for name in self._KEPT}
        state.update({name: kept(tensor) for name, tensor in self._kept_tensors().items()})
        for name, mean in self._kept_means().items():
            state[name] = {"lost": kept(mean.lost())} if mean is not None else None
        return state

    @torch.no_grad()
    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Collective, before the first step: of an averager made with the same options, on as many
        ranks. The model and the optimizer are loaded before, but after this one was made, as that
        begins with rank 0's parameters."""
        expected = {*self._KEPT, *self._kept_tensors(), *self._kept_means()}
        if set(state) != expected:
            raise ValueError(f"the state of another kind of averager: it has {sorted(state)}, and "
                             f"{sorted(expected)} are expected")
        for name in self._KEPT:
            setattr(self, name, state[name])
        for name in self._kept_means():
            if state[name] is not None:
                lost = self._make(name).lost()
                if lost is not None:
                    lost.copy_(state[name]["lost"])
        for name, tensor in self._kept_tensors().items():
            if (tensor is None) != (state[name] is None):
                raise ValueError(f"{name} of an averager with other options")
            if tensor is not None:
                tensor.copy_(state[name])

    _KEPT = ("steps", "averages", "weight", "_last")

    def _kept_tensors(self):
        return {"model": self._outer.model, "velocity": self._outer._velocity}

    def _kept_means(self):
        return {"mean": self._mean}

    def _make(self, name):
        self._mean = self._made(self._comm)
        return self._mean

    def finish(self) -> None:
        """Collective, after the last step: a plain average, unless one has just been. Then all
        ranks have the same parameters, and the ledger is there."""
        if self.steps != self._last:
            self._average_all(plain=True)
        if self._ledger is not None:
            self._ledger.close()

    def _forget(self):
        self._means.clear()
        self._mean = None


class PeriodicModelAverager(_Averager):
    """Averages after each `period` steps (K-AVG: Zhou, Cong, IJCAI 2018; with outer="nesterov",
    DiLoCo's)."""

    def __init__(self, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None,
                 period: int = 8, *, process_group: Optional[dist.ProcessGroup] = None,
                 outer: str = "none", outer_momentum: float = 0.5, outer_lr: float = 1.0,
                 outer_gain: str = "1", nesterov_base: str = "unshifted",
                 opt_state: str = "local", wire: str = "float32", weighted: bool = False,
                 ledger: Any = None, writer: Any = None):
        super().__init__(model, optimizer, process_group, outer, outer_momentum, outer_lr,
                         outer_gain, nesterov_base, opt_state, wire, weighted, ledger, writer)
        self.period = period

    def _step(self):
        if self.steps % self.period == 0:
            self._average_all()


class HierarchicalModelAverager(_Averager):
    """Averages in groups of ranks after each `k1` steps, and all ranks after each `k2`, where both
    are due only these (Hier-AVG: Zhou, Cong, arXiv 1903.05133). `outer` moves the global model,
    at averages of all ranks.

    group_size  groups of so many consecutive ranks, the last perhaps of fewer; None: the ranks
                that share a machine's memory
    """

    def __init__(self, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None,
                 k1: int = 4, k2: int = 32, group_size: Optional[int] = None, *,
                 process_group: Optional[dist.ProcessGroup] = None, outer: str = "none",
                 outer_momentum: float = 0.5, outer_lr: float = 1.0, outer_gain: str = "1",
                 nesterov_base: str = "unshifted", opt_state: str = "local",
                 wire: str = "float32", weighted: bool = False, ledger: Any = None,
                 writer: Any = None):
        super().__init__(model, optimizer, process_group, outer, outer_momentum, outer_lr,
                         outer_gain, nesterov_base, opt_state, wire, weighted, ledger, writer)
        self.k1, self.k2 = k1, k2
        comm = self._comm
        colors = [r // group_size if group_size else comm.peer(r).node for r in range(comm.size)]
        groups = [[r for r in range(comm.size) if colors[r] == color]
                  for color in sorted(set(colors))]
        self._groups = [ranks for ranks in groups if len(ranks) > 1]
        alone = all(comm.rank not in ranks for ranks in self._groups)
        self._group = comm.split(None if alone else colors[comm.rank], comm.rank)
        if self._group is not None:
            communicators._add(self._group)
        self._local: Optional[_Mean] = None
        self._last_local = 0
        self._model = None # That the group had in common last, where the way travels.
        self._share()

    def _share(self):
        self._last_local = self.steps
        if self._wire != "float32" and self._group is not None:
            if self._model is None:
                self._model = torch.empty(self._flat.count, device="cpu")
            self._flat.read(self._model)

    def _step(self):
        if self.steps % self.k2 == 0:
            self._average_all()
        elif self.steps % self.k1 == 0:
            if self._group is not None:
                self._average_group()
            for ranks in self._groups:
                self._record(ranks, "local", self.steps, self._last_local)
            self._share()

    _KEPT = (*_Averager._KEPT, "_last_local")

    def _kept_tensors(self):
        return {**super()._kept_tensors(), "shared": self._model}

    def _kept_means(self):
        return {**super()._kept_means(), "local": self._local}

    def _make(self, name):
        if name != "local":
            return super()._make(name)
        self._local = self._made(self._group)
        return self._local

    def _average_group(self):
        if self._local is None:
            self._make("local")
        self._run(self._local, self._model)
        self._flat.write(self._local.tensor[:self._flat.count])

    def _average_all(self, plain=False):
        super()._average_all(plain)
        self._share()

    def _forget(self):
        super()._forget()
        self._local = None


class AdaptivePeriodModelAverager(_Averager):
    """Averages after a number of steps that follows 1 / learning rate (ADPSGD: Jiang, Agrawal,
    Adaptive Periodic Averaging, arXiv 2007.06134).

    period          at first
    sample_steps    how many steps are sampled: a quarter of the run, say. Meanwhile C is the mean
                    of S / lr, S being the mean squared distance of the ranks' models from their
                    mean, lr the optimizer's learning rate; afterwards the period grows by one
                    when S < low lr C, and shrinks by one when S > high lr C
    period_max      the largest; None: any
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer,
                 sample_steps: int, period: int = 4, period_max: Optional[int] = None,
                 low: float = 0.7, high: float = 1.3, *,
                 process_group: Optional[dist.ProcessGroup] = None, opt_state: str = "local",
                 wire: str = "float32", ledger: Any = None, writer: Any = None):
        super().__init__(model, optimizer, process_group, "none", 0.0, 1.0, "1", "unshifted",
                         opt_state, wire, False, ledger, writer, keep=True)
        self.period = period
        self._sample_steps, self._most, self._low, self._high = sample_steps, period_max, low, high
        self._samples, self._constant, self._own = 0, 0.0, 0.0

    _KEPT = (*_Averager._KEPT, "period", "_samples", "_constant")

    def _way(self, way):
        self._own = float(torch.linalg.vector_norm(way, dtype=torch.float64)) ** 2

    def _step(self):
        if self.steps - self._last < self.period:
            return
        self._average_all()
        # The same on all ranks, so none must be told the period.
        of_all, steps = self._comm.allreduce(np.array([self._own, self.steps], np.float64),
                                             op="avg")
        if steps != self.steps:
            raise rubato.MismatchError(f"an average after step {self.steps}, of ranks after step "
                                       f"{steps} in the mean")
        spread = max(float(of_all) - self._square, 0.0)
        write(self._writer, self.steps, spread=spread)
        self._decide(spread, self._rate())

    def _decide(self, spread, rate):
        if not rate > 0.0 or not np.isfinite(spread): # A rate of 0 says nothing of the spread.
            return
        if self.steps - 1 < self._sample_steps:
            self._samples += 1
            self._constant += (spread / rate - self._constant) / self._samples
        elif self._constant > 0.0:
            wanted = rate * self._constant
            if spread < self._low * wanted and (self._most is None or self.period < self._most):
                self.period += 1
            elif spread > self._high * wanted and self.period > 1:
                self.period -= 1


class DecoupledModelAverager(_Averager):
    """Averages that nobody waits for (Overlap-Local-SGD: Wang, Liang, Joshi, ICASSP 2020). After
    each `period` steps the mean that was begun `period` steps before has arrived: it moves the
    anchor z, each rank goes on from (1 - pull) x + pull z, and the next mean begins. A rank waits
    only for those that are more than a period behind.

    pull    more than 0, at most 1
    outer   how the anchor moves: "none", "block", "slowmo"

    The ranks' models are never equal on the way; finish() takes a plain average.
    """

    def __init__(self, model: torch.nn.Module, optimizer: Optional[torch.optim.Optimizer] = None,
                 period: int = 32, pull: float = 0.6, *,
                 process_group: Optional[dist.ProcessGroup] = None, outer: str = "none",
                 outer_momentum: float = 0.5, outer_lr: float = 1.0, outer_gain: str = "1",
                 opt_state: str = "local", wire: str = "float32", weighted: bool = False,
                 ledger: Any = None, writer: Any = None):
        if not 0.0 < pull <= 1.0:
            raise ValueError(f"pull is {pull}: expected more than 0, and at most 1")
        if outer == "nesterov":
            raise ValueError("outer is 'nesterov': an anchor moves by 'none', 'block' or 'slowmo'")
        if opt_state == "average":
            raise ValueError("opt_state is 'average': a mean of optimizers' states would come "
                             "late: expected 'local' or 'reset'")
        super().__init__(model, optimizer, process_group, outer, outer_momentum, outer_lr,
                         outer_gain, "unshifted", opt_state, wire, weighted, ledger, writer,
                         keep=True)
        self.period, self._pull = period, pull
        self._in_flight = self._has_arrived = False
        self._begun, self._begun_rate = 0, 0.0 # Steps, and the rate, when the mean began.
        self._make("mean") # Which waits for all.

    _KEPT = (*_Averager._KEPT, "_begun", "_begun_rate", "_has_arrived")

    def _make(self, name):
        return self._mean or super()._make(name)

    def _arrive(self):
        if self._in_flight:
            self._end(self._mean, self._outer.model)
            self._in_flight, self._has_arrived = False, True

    @torch.no_grad()
    def _follow(self):
        """The anchor moves by the mean that has arrived, and the rank towards the anchor."""
        self._arrive()
        if self._has_arrived:
            count = self._flat.count
            self._outer.move(self._mean.tensor[:count], self._begun_rate)
            self._buffers.pull(self._mean.tensor[count:], self._pull)
            self._averaged(self._begun)
            self.averages += 1
            self._has_arrived = False
        self._flat.pull(self._outer.model, self._pull)

    def _step(self):
        if self.steps % self.period != 0:
            return
        self._follow()
        self._reset()
        self._begun, self._begun_rate = self.steps, self._rate()
        self._begin(self._mean, self._outer.model)
        self._in_flight = True

    def state_dict(self) -> Dict[str, Any]:
        """As of the others, but collective: a mean in flight is waited for, and kept."""
        self._arrive()
        return super().state_dict()

    def _kept_tensors(self):
        arrived = self._mean.tensor if self._has_arrived else None
        return {**super()._kept_tensors(), "arrived": arrived}

    def finish(self) -> None:
        """Collective, after the last step: what is in flight is applied, and a plain average
        follows. Then all ranks have the same parameters, and the ledger is there."""
        if self._begun == self.steps: # The plain average is of the same models.
            self._arrive()
            self._has_arrived = False
        elif self._in_flight or self._has_arrived:
            self._follow()
        super().finish()
