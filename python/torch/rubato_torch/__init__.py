"""Rubato as a backend of torch.distributed.

    torch.distributed.init_process_group("rubato")

works without an import of this module: PyTorch finds it by its entry point (with
TORCH_DEVICE_BACKEND_AUTOLOAD=0: import rubato_torch first).
"""

import atexit
import sys

__all__ = ["register"]
_module = None


def _load():
    """The compiled part, when the first group is made: importing torch shall not need it."""
    global _module
    if _module is not None:
        return _module
    import torch
    try:
        import rubato  # Its library, where it brings one, is the one that is linked.
    except ImportError:
        rubato = None
    from . import _built
    here = torch.__version__.split("+")[0]
    if here != _built.TORCH:
        raise ImportError(f"rubato_torch was built for torch {_built.TORCH}, and this is {here}: "
                          "install it again, with pip install --no-build-isolation "
                          "--force-reinstall --no-deps")
    from . import _backend
    _module = _backend
    atexit.register(_end)
    return _module


def _end():
    """Groups that nobody has destroyed: others are not left to wait for what this process owes
    them, nor for its calls where an exception ends it."""
    _module.end_all(getattr(sys, "last_type", None) is not None)


def _leave(options, why):
    """The others of the group hear it, as of what fails in the compiled part (backend.cpp)."""
    rank = options.group_rank
    text = f"rank {rank} has failed: {why}".encode("ascii", "replace")[:255]
    options.store.set("rubato/failed" if rank else "rubato/id", text)
    if rank:
        options.store.set(f"rubato/here/{rank}", b"")


def _create(options, backend_options=None):
    """Called by init_process_group and new_group, on each rank of the new group."""
    try:
        module = _load()
    except Exception as error:
        _leave(options, error)
        raise
    return module.create(options.store, options.group_rank, options.group_size, options.timeout,
                          options.group_id, list(options.global_ranks_in_group or ()))


def register():
    """Tells torch.distributed of the backend; twice does no harm."""
    import torch.distributed as dist
    if dist.is_available():
        dist.Backend.register_backend("rubato", _create, extended_api=True,
                                      devices=["cpu", "cuda"])


def _autoload():
    """The entry point: called at the end of `import torch`."""
    register()


if "torch" in sys.modules and hasattr(sys.modules["torch"], "distributed"):
    register()
