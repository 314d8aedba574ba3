"""A process group for torchft: lost replicas are left out and new ones join, at the next step.

    from rubato_torch.torchft import ProcessGroupRubato
    manager = torchft.Manager(pg=ProcessGroupRubato(timeout=timedelta(seconds=30)), ...)

takes the place of torchft's own ProcessGroupGloo. A communicator of the library never gets new
ranks, so each membership that torchft decides on is a new one. Importing this needs the package
torchft.
"""

import torch
from torch.distributed import ProcessGroup
from torchft.process_group import ProcessGroupWrapper

from . import _load

__all__ = ["ProcessGroupRubato"]


class ProcessGroupRubato(ProcessGroupWrapper):
    """Collectives among replicas over Rubato, for tensors of the host and of CUDA (the latter are
    copied through the host).

    ProcessGroupRubato(timeout=timedelta(seconds=60)): `timeout` is that of each call and of the
    start of each membership; `set_timeout` changes it for those that follow.

    A call on which a replica is lost, or late by the timeout, raises DistBackendError from its
    work and future; the manager then drops the step, and torchft reconfigures the group.
    """

    def _create_pg(self, store, rank, world_size):
        # Attributes that torchft keeps for its own groups; what it calls them has changed.
        ranks = getattr(self, "_global_ranks", None) or ()
        backend = _load().create(store, rank, world_size, self._timeout, "torchft", list(ranks))
        kind = ProcessGroup.BackendType.CUSTOM
        group = ProcessGroup(store, rank, world_size)
        group._set_default_backend(kind)
        for device in ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",):
            group._register_backend(torch.device(device), kind, backend)
        return group

    def shutdown(self):
        """Ends the group without waiting for others, who may be lost."""
        self.abort(errored=False)

    def getBackendName(self):
        """What torchft's messages call it."""
        return "torchft-rubato"
