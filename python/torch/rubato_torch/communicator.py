"""The communicator on which exchanges, averagers and samplers work: of the ranks of a process
group, and apart from the group's backend, which may be any that has all_gather_object.

It is one for each process group, however many exchanges there are: so the library sees all that a
rank waits for. It ends with the process.
"""

import atexit
import os
import sys
import weakref
from typing import Optional

import rubato
import torch.distributed as dist

__all__ = ["communicator"]
_PATIENCE_AT_EXIT = 5.0 # Seconds, for the other ranks.
_of_groups = weakref.WeakKeyDictionary()
_all = []
_users = weakref.WeakSet() # What has memory of one, and gives it back in _forget().


def communicator(process_group: Optional[dist.ProcessGroup] = None) -> rubato.Communicator:
    """The communicator of a process group (None: of the world). Collective when a group is first
    asked for."""
    group = process_group if process_group is not None else dist.group.WORLD
    if group is None:
        raise RuntimeError("rubato_torch: call torch.distributed.init_process_group first")
    made = _of_groups.get(group)
    if made is None:
        size = dist.get_world_size(group)

        def allgather(data):
            parts = [None] * size
            dist.all_gather_object(parts, data, group=group)
            return parts

        made = rubato.init_oob(allgather, dist.get_rank(group), size)
        _of_groups[group] = made
        _add(made)
    return made


def _add(comm):
    """One more that ends with the process."""
    if not _all:
        atexit.register(_end)
        os.register_at_fork(after_in_child=_all.clear) # Not the child's to end.
    _all.append(comm)


def _end():
    """As the process ends: others are not left to wait, nor for long waited for."""
    for user in list(_users):
        user._forget()
    failed = getattr(sys, "last_type", None) is not None
    for comm in _all:
        try:
            if failed:
                comm.abort()
            comm.set_timeout(_PATIENCE_AT_EXIT)
            comm.finalize()
        except rubato.Error as error:
            if not failed:
                print(f"rubato_torch: at the end of rank {comm.rank}: {error}", file=sys.stderr)
    _all.clear()
