"""Samples for whoever is there: a rank that is late leaves its share to the others.

    sampler = SharedWorkSampler(dataset, batch_size=32)
    loader = DataLoader(dataset, batch_sampler=sampler)
    for epoch in range(epochs):
        for x, y in loader: # Together the ranks see each batch of the epoch once.
            ...
    sampler.leave()
"""

from typing import Iterator, List, Optional, Sized

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Sampler

from .communicator import communicator

__all__ = ["SharedWorkSampler"]
_DEPTH_LEAST, _DEPTH_MOST = 64, 4096


class SharedWorkSampler(Sampler[List[int]]):
    """A batch sampler, whose ranks draw the next batch that nobody has drawn (rubato-train's
    --work shared). There is no server: a draw is a commit to a partial allreduce whose rounds the
    first to ask opens, and all ranks see the same rounds with the same ranks in them, so each
    knows its place. It draws while the batch before is computed, so it does not wait.

    Each epoch has a permutation of its own, of `seed` and the epoch's number; what is left of
    batches is left out. How many batches a rank gets is not known before: it has no length.
    Ranks are in the same epoch, or one begins the next while others finish theirs. Of the next
    epoch each rank may hold one batch, which is its first one there: so all ranks go through
    equally many epochs.

    Meant for what takes different numbers of steps: PartialExchange with rounds="free" (or policy
    "adaptive"), LaggedExchange with accumulate="until-done". `weight` of these is the samples.
    With worker processes the loader draws ahead of its work by as many batches as it prefetches.

    depth   rounds of draws that a rank may be behind before it holds up the others'
    """

    def __init__(self, dataset: Sized, batch_size: int, *, shuffle: bool = True, seed: int = 0,
                 process_group: Optional[dist.ProcessGroup] = None, depth: Optional[int] = None):
        self._comm = communicator(process_group)
        size = self._comm.size
        self.batch_size, self._shuffle, self._seed = batch_size, shuffle, seed
        self._rows = len(dataset)
        self.batches = self._rows // batch_size
        if self.batches < size:
            raise ValueError(f"{self.batches} batches in an epoch, for {size} ranks")
        self.epoch = 0
        self.drawn = 0
        if depth is None:
            depth = min(max(20 * size, _DEPTH_LEAST), _DEPTH_MOST)
        self._tickets = self._comm.partial(1, "uint64", "sum", "solo", rounds="free", depth=depth)
        self._taken = size # Batches given away so far, each rank's first among them.
        self._asked = 0
        self._hand: Optional[int] = self._comm.rank
        self._order = None

    batches: int
    "Of all ranks, in an epoch."
    epoch: int
    "That comes next, or is under way."
    drawn: int
    "Batches that this rank has got."

    def _ask(self, weight):
        """`weight` 1: for a batch; 0: for another round, in which the one asked for will be."""
        self._tickets.contribute(np.array([weight], np.uint64), self._asked, weight)
        self._asked += 1

    def _draw(self):
        """The place of the batch that was asked for, counted through all epochs."""
        mine, rank = None, self._comm.rank
        while True:
            with self._tickets.collect_view() as lent:
                if lent is not None:
                    weights = lent[1].ranks["weight"]
                    if weights[rank] > 0:
                        mine = self._taken + int(weights[:rank].sum())
                    self._taken += lent[1].weight
            if lent is None:
                if mine is not None:
                    return mine
                self._ask(0) # It came too late for a round, and waits for another.

    def _rows_of(self, batch):
        if self._order is None:
            if self._shuffle:
                generator = torch.Generator().manual_seed((self._seed << 32) + self.epoch)
                self._order = torch.randperm(self._rows, generator=generator, device="cpu")
            else:
                self._order = torch.arange(self._rows, device="cpu")
        begin = batch * self.batch_size
        return self._order[begin:begin + self.batch_size].tolist()

    def __iter__(self) -> Iterator[List[int]]:
        """One epoch: this rank's batches of it."""
        first = self.epoch * self.batches
        while True:
            if self._hand is None:
                self._hand = self._draw()
            if self._hand >= first + self.batches:
                break
            rows = self._rows_of(self._hand - first)
            self._hand = None
            self._ask(1)
            self.drawn += 1
            yield rows
        self.epoch += 1
        self._order = None

    def leave(self) -> None:
        """After the last epoch: this rank draws no more. Before finish() of an exchange, which
        waits for the others, who may be drawing still."""
        self._tickets.leave()
