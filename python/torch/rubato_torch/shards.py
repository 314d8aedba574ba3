"""A model that the ranks of a group hold together, each a part of it (fully_shard), and of which
there are several replicas: one rank of each, its leader, exchanges for all.

If each rank exchanged its part by itself, a late replica could be in time for the round of one
part and too late for that of another, so updates would hold other replicas for other parameters.
And ranks could wait for each other in a circle: each for a round of its part, and for the ranks of
its replica, which wait for rounds of theirs.
"""

import time
from typing import Optional, Tuple

import numpy as np
import rubato
import torch

from . import communicator as communicators
from .communicator import communicator
from .flat import Flat, tensor_of


class Shards:
    """The ranks of one replica, who all call the same in the same order."""

    def __init__(self, flat: Flat):
        meshes = {tensor.device_mesh for tensor in flat.tensors if hasattr(tensor, "device_mesh")}
        if len(meshes) != 1 or not all(hasattr(tensor, "to_local") for tensor in flat.tensors):
            raise ValueError("not all parameters are sharded over the same ranks")
        mesh = meshes.pop()
        if mesh.ndim != 1:
            raise ValueError("fully_shard would wait for all replicas: make it with the mesh of "
                             'the shards only, as fully_shard(model, mesh=mesh["shard"])')
        self.group = mesh.get_group()
        self.comm = comm = communicator(self.group)
        self.leads = comm.rank == 0
        self.counts = comm.allgather(np.array([flat.count], np.uint64)).reshape(-1)
        self.count = int(self.counts.sum())
        # How much a rank has for the leader, and the leader for each.
        self._of_rank = np.zeros(comm.size, np.uint64)
        self._of_rank[0] = flat.count
        self._of_leader = self.counts if self.leads else np.zeros(comm.size, np.uint64)
        self._mine = self._room(flat.count)
        self._whole = self._room(self.count if self.leads else 0)
        # Whether there is an update; its rate, or NaN; how far the next gradient looks ahead.
        self._answer = comm.alloc(3, np.float64)
        self._tell = comm.op_broadcast(self._answer)
        communicators._users.add(self)

    def _room(self, count):
        return self.comm.alloc(count) if count > 0 else np.empty(0, np.float32)

    def _forget(self):
        self._mine = self._whole = self._answer = self._tell = None

    def gather(self, flat: Flat) -> Optional[torch.Tensor]:
        """The gradient of the whole replica, at its leader."""
        flat.read_gradients(tensor_of(self._mine))
        self.comm.alltoallv(self._mine, self._of_rank, self._of_leader, out=self._whole)
        return tensor_of(self._whole) if self.leads else None

    def _scatter(self):
        self.comm.alltoallv(self._whole, self._of_leader, self._of_rank, out=self._mine)

    def tell(self, vector: Optional[torch.Tensor], rate: Optional[float] = None,
             reach: int = 0) -> torch.Tensor:
        """The leader's word on the next update, if there is one: the others' hear()."""
        self._answer[:] = vector is not None, np.nan if rate is None else rate, reach
        self._tell.start().wait()
        if vector is not None:
            tensor_of(self._whole).copy_(vector)
            self._scatter()
        return tensor_of(self._mine)

    def hear(self, until: float) -> Tuple[Optional[torch.Tensor], Optional[float], int]:
        """That word: this rank's part of an update's gradient, or None, the rate that the
        optimizer is given, if it is given one, and by how many updates the next gradient is
        expected to be late. `until` when to wait for it, by the clock of monotonic(): a leader may
        wait for long."""
        self._tell.start()
        while True:
            try:
                self._tell.wait()
                break
            except rubato.TimeoutError:
                if time.monotonic() > until:
                    raise
        there, rate, reach = self._answer
        if not there:
            return None, None, 0
        self._scatter()
        return tensor_of(self._mine), None if np.isnan(rate) else float(rate), int(reach)
