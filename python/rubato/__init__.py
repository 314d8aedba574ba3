"""Rubato: collective communication that need not wait for the slowest rank.

    import numpy as np
    import rubato

    with rubato.init() as comm: # Under rubato-run -n 4, torchrun, mpirun or srun.
        total = comm.allreduce(np.ones(3, np.float32))
        print(comm.rank, total)
"""

from typing import Iterator, List, NamedTuple, Optional, Sequence

from ._library import FOLDER, VERSION, check, constants, ffi, lib, library_path, said, text
from .communicator import Communicator, Peer, Stats, create_id, init, init_id, init_oob
from .errors import (ArgumentError, AuthenticationError, CancelledError, Error, InternalError,
                     MismatchError, OutOfMemoryError, PeerError, SystemError, TimeoutError,
                     UnsupportedError)
from .lagged import Lagged
from .ledger import Ledger
from .operation import Operation
from .partial import Partial, PartialStats, Round

__version__ = VERSION
__all__ = [
    "ArgumentError", "AuthenticationError", "CancelledError", "Communicator", "Error",
    "InternalError", "Lagged", "Ledger", "MismatchError", "Operation", "OutOfMemoryError",
    "Partial", "PartialStats", "Peer", "PeerError", "Round", "Setting", "Stats", "SystemError",
    "TimeoutError", "UnsupportedError", "algorithms", "create_id", "explain_job", "get_include",
    "get_library", "init", "init_id", "init_oob", "operations", "prove", "reduction_kernel",
    "settings",
]


class Setting(NamedTuple):
    """A setting of the environment: where its value came from, and what it is for."""

    variable: str
    value: str
    source: str
    help: str


def explain_job() -> str:
    """Which job init() would join, as what, and who says so."""
    return said(lib.rubato_job_explain)


def settings() -> List[Setting]:
    """The settings of the environment (docs/tuning.md)."""
    rows = []

    @ffi.callback("void(void *, const char *, const char *, const char *, const char *)")
    def row(_, *words):
        rows.append(Setting(*map(text, words)))

    check(lib.rubato_config_each(row, ffi.NULL))
    return rows


def _names(name) -> Iterator[str]:
    index = 0
    while (chars := name(index)) != ffi.NULL:
        yield text(chars)
        index += 1


def operations() -> List[str]:
    """The kinds of operation that have algorithms."""
    return list(_names(lib.rubato_operation_name))


def algorithms(operation: str) -> List[str]:
    """The algorithms of one kind of operation."""
    return list(_names(lambda index: lib.rubato_algorithm_name(operation.encode(), index)))


def prove(operation: str, algorithm: str, ranks: int, *, nodes: Optional[Sequence[int]] = None,
          root: Optional[int] = None, count: int = 0) -> str:
    """Proves an algorithm for a number of ranks, on nodes if their number is given for each rank;
    returns what was shown, in sentences. `root` None: all; `count` 0: several. Raises
    InternalError when it is wrong."""
    where = ffi.NULL if nodes is None else ffi.new("uint32_t[]", list(nodes))
    one = constants["RUBATO_PROVE_ROOTS_ALL"] if root is None else root
    return said(lambda chars, size: lib.rubato_prove(operation.encode(), algorithm.encode(), ranks,
                                                     where, one, count, 0, chars, size))


def reduction_kernel() -> str:
    """Which kernels reduce here: "plain", "sse2", "avx2", "avx512" or "neon"."""
    return text(lib.rubato_reduction_kernel())


def get_include() -> str:
    """The folder of rubato.h, for programs that are compiled against this package."""
    return str(FOLDER / "include")


def get_library() -> str:
    """The file of the C library."""
    return library_path()
