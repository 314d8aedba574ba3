"""Lagged allreduce: gradients of step j are applied at step j + lag, while their allreduce runs
in the background (LAGA: Hakimi et al., ICDM 2021)."""

from typing import Any, Optional, Tuple

import numpy as np

from ._library import check, ffi, lib, nanoseconds
from .buffers import view
from .relaxed import Relaxed


class Lagged(Relaxed):
    """A lagged allreduce of vectors of `count` elements. Made by Communicator.lagged, on every
    rank with the same arguments. One step of an application, on every rank:

        lagged.accumulate(gradient, weight)
        lagged.begin()
        got = lagged.collect()
        if got is not None:
            result, weight = got
    """

    _name = "lagged allreduce"

    def __init__(self, comm, count, type, op, lag):
        place = ffi.new("rubato_lagged **")
        check(lib.rubato_lagged_create(comm._handle(), count, type, op, lag, place))
        super().__init__(comm, place[0], count, type)
        self._done = ffi.new("bool *")

    def acquire(self) -> np.ndarray:
        """The accumulation buffer, which starts at zero: add into it. Valid until begin()."""
        return self._leased(lib.rubato_lagged_acquire)

    def accumulate(self, gradient: Optional[Any] = None, weight: int = 1) -> None:
        """Adds `gradient` (None: the caller has added into the acquired buffer) and counts
        `weight`."""
        address = ffi.NULL
        if gradient is not None:
            given = self._given(gradient)
            address = given.address
        check(lib.rubato_lagged_accumulate(self._handle(), address, weight))

    def test(self) -> bool:
        """Whether the oldest allreduce in flight is over, or there is none. Does not block."""
        check(lib.rubato_lagged_test(self._handle(), self._done))
        return bool(self._done[0])

    def begin(self) -> None:
        """Starts the allreduce of what was accumulated. At most lag + 1 may be in flight."""
        check(lib.rubato_lagged_begin(self._handle()))

    def _take(self, function, timeout):
        place, weight = ffi.new("const void **"), ffi.new("uint64_t *")
        check(function(self._handle(), place, weight, nanoseconds(timeout)))
        if place[0] == ffi.NULL:
            return None
        result = view(ffi.cast("void *", place[0]), self.count, self._type)
        result.flags.writeable = False
        return result, weight[0]

    def collect(self, timeout: Optional[float] = None) -> Optional[Tuple[np.ndarray, int]]:
        """Waits for the allreduce begun `lag` begins before the last: (read-only array, sum of
        weights), or None: there is none yet. The array is lent until the next begin()."""
        return self._take(lib.rubato_lagged_collect, timeout)

    def flush(self, timeout: Optional[float] = None) -> Optional[Tuple[np.ndarray, int]]:
        """The next of those still in flight, oldest first; None: none is left."""
        return self._take(lib.rubato_lagged_flush, timeout)

    def free(self) -> None:
        """Ends it."""
        self._end(lib.rubato_lagged_free)
