"""What the relaxed operations share: vectors of one length and type, and a handle that ends with
free() or with the communicator."""

import numpy as np

from ._library import check, ffi
from .buffers import buffer, dtype_of, view
from .errors import ArgumentError


class Relaxed:
    """A relaxed operation on vectors of `count` elements. As a context manager it is freed at the
    end of the block, unless an exception ends that: the other ranks may never come to free it."""

    _name = ""  # For errors.

    def __init__(self, comm, operation, count, type):
        self._comm, self._operation = comm, operation
        self.count, self._type = count, type
        comm._own(self)

    count: int
    "Elements of each vector."

    @property
    def dtype(self) -> np.dtype:
        """The numpy type of the vectors."""
        return dtype_of(self._type)

    def _handle(self):
        if self._operation is None:
            raise ArgumentError(f"the {self._name} was freed, or its communicator finalized")
        return self._operation

    def _forget(self):
        self._operation = None

    def _given(self, vector):
        """A vector of the caller's, of the right length and type."""
        given = buffer(vector)
        if given.count != self.count or given.type != self._type:
            raise ArgumentError(f"a vector of {given.count} elements, or of another type: "
                                f"expected {self.count} of {self.dtype}")
        return given

    def _leased(self, acquire):
        place = ffi.new("void **")
        check(acquire(self._handle(), place))
        return view(place[0], self.count, self._type)

    def _end(self, free):
        operation, self._operation = self._operation, None
        check(free(operation if operation is not None else ffi.NULL))

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.free()
