"""Persistent operations: made once by all ranks, started any number of times, not blocking."""

from typing import Any, Optional

import numpy as np

from ._library import check, ffi, lib, nanoseconds
from .errors import ArgumentError


class Operation:
    """What Communicator.op_allreduce and its like return. Its buffers belong to the library from
    start() until wait() returns or test() is true. `result` is the array that the result comes to.

    As a context manager it is freed at the end of the block.
    """

    def __init__(self, comm, make, arguments, result, keep):
        place = ffi.new("rubato_op **")
        check(make(comm._handle(), *arguments, place))
        self._comm, self._op, self._keep = comm, place[0], keep
        self._done = ffi.new("bool *")
        self.result = result
        comm._own(self)

    def _handle(self):
        if self._op is None:
            raise ArgumentError("the operation was freed, or its communicator was finalized")
        return self._op

    def start(self) -> "Operation":
        """Starts it and returns at once; returns the operation. Errors: ArgumentError when it is in
        flight already."""
        check(lib.rubato_start(self._handle()))
        self._comm._in_flight.add(self) # The library writes to its buffers: it must not vanish.
        return self

    def test(self) -> bool:
        """Makes progress once; whether it is complete. Raises the operation's error."""
        try:
            check(lib.rubato_test(self._handle(), self._done))
        except Exception:
            self._comm._in_flight.discard(self)
            raise
        if self._done[0]:
            self._comm._in_flight.discard(self)
        return bool(self._done[0])

    def wait(self, timeout: Optional[float] = None) -> Any:
        """Blocks until it is complete; returns `result`. `timeout` in seconds; None: that of the
        communicator. TimeoutError: still in flight, wait again or cancel."""
        status = lib.rubato_wait(self._handle(), nanoseconds(timeout))
        if status != TIMEOUT:
            self._comm._in_flight.discard(self)
        check(status)
        return self.result

    def cancel(self) -> bool:
        """Ends it and returns when its buffers are quiet: True if it was ended in flight, which
        for a collective poisons the communicator; False if there was nothing to end."""
        status = lib.rubato_cancel(self._handle())
        self._comm._in_flight.discard(self)
        if status not in (0, CANCELLED):
            check(status)
        return status == CANCELLED

    def residual(self) -> np.ndarray:
        """What rounding has lost so far, of an operation that feeds it back
        (Communicator.set_wire): an array that is the library's until the operation is freed, to
        be read and written while it is not in flight. ArgumentError: it has none."""
        lost, count = ffi.new("float **"), ffi.new("uint64_t *")
        check(lib.rubato_op_residual(self._handle(), lost, count))
        return np.frombuffer(ffi.buffer(lost[0], count[0] * 4), np.float32)

    def free(self) -> None:
        """Frees it; one that is in flight is cancelled first."""
        if self._op is not None:
            self._comm._in_flight.discard(self)
            lib.rubato_op_free(self._op)
        self._forget()

    def _forget(self):
        self._op = self._keep = None

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.free()

    def __del__(self):
        if getattr(self, "_op", None) is not None:
            self.free()


TIMEOUT = lib.RUBATO_ERR_TIMEOUT
CANCELLED = lib.RUBATO_ERR_CANCELLED
