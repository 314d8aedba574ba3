"""Lagged allreduce: gradients of step j are applied at step j + lag, while their allreduce runs
in the background (LAGA: Hakimi et al., ICDM 2021)."""

from typing import Any, Optional, Tuple

import numpy as np

from ._library import check, ffi, lib, nanoseconds
from .buffers import buffer, dtype_of, view
from .errors import ArgumentError


class Lagged:
    """A lagged allreduce of vectors of `count` elements. Made by Communicator.lagged, on every
    rank with the same arguments. One step of an application, on every rank:

        lagged.accumulate(gradient, weight)
        lagged.begin()
        got = lagged.collect()
        if got is not None:
            result, weight = got
    """

    def __init__(self, comm, count, type, op, lag):
        place = ffi.new("rubato_lagged **")
        check(lib.rubato_lagged_create(comm._handle(), count, type, op, lag, place))
        self._comm, self._lagged = comm, place[0]
        self.count, self._type = count, type
        self._done = ffi.new("bool *")
        comm._own(self)

    count: int
    "Elements of each vector."

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of the vectors."""
        return dtype_of(self._type)

    def _handle(self):
        if self._lagged is None:
            raise ArgumentError("the lagged allreduce was freed, or its communicator finalized")
        return self._lagged

    def _forget(self):
        self._lagged = None

    def acquire(self) -> np.ndarray:
        """The accumulation buffer, which starts at zero: add into it. Valid until begin()."""
        place = ffi.new("void **")
        check(lib.rubato_lagged_acquire(self._handle(), place))
        return view(place[0], self.count, self._type)

    def accumulate(self, gradient: Optional[Any] = None, weight: int = 1) -> None:
        """Adds `gradient` (None: the caller has added into the acquired buffer) and counts
        `weight`."""
        address = ffi.NULL
        if gradient is not None:
            given = buffer(gradient)
            if given.count != self.count or given.type != self._type:
                raise ArgumentError(f"a gradient of {given.count} elements, or of another type: "
                                    f"expected {self.count} of {self.dtype}")
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
        lagged, self._lagged = self._lagged, None
        check(lib.rubato_lagged_free(lagged if lagged is not None else ffi.NULL))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.free()
