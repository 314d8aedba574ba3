"""What may be handed to a collective: numpy arrays, anything with the buffer protocol (bytearray,
memoryview, array.array) and anything that lends its memory by DLPack (tensors of frameworks).

Nothing is copied. Memory must be contiguous; what is written to must be writable.
"""

import ctypes

import numpy as np

from ._library import TYPES, TYPE_BYTES, ffi
from .errors import ArgumentError, UnsupportedError

_BY_DTYPE = {np.dtype(name): code for name, code in TYPES.items() if name != "bfloat16"}
_DTYPES = {code: dtype for dtype, code in _BY_DTYPE.items()}
_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat"} # Of DLPack.
_HOST = (1, 3) # kDLCPU, kDLCUDAHost
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class Buffer:
    """Memory as the library takes it: `address`, `count` elements of type number `type`. `shape` is
    that of the object; `strides`, in elements, are None in C order. `keep` holds the memory while
    this lives. `dtype` is None where numpy has none for it."""

    __slots__ = ("address", "count", "type", "shape", "strides", "keep", "dtype")

    def __init__(self, address, count, type, shape, strides, keep, dtype):
        self.address, self.count, self.type = address, count, type
        self.shape, self.strides, self.keep, self.dtype = shape, strides, keep, dtype


def type_number(dtype):
    """The number of a type that is given as a numpy dtype or by its name, "bfloat16" included."""
    if isinstance(dtype, str) and dtype in TYPES:
        return TYPES[dtype]
    try:
        return _BY_DTYPE[np.dtype(dtype)]
    except KeyError:
        if np.dtype(dtype).name == "bfloat16" and np.dtype(dtype).isnative:
            return TYPES["bfloat16"]
    except TypeError:
        pass
    raise ArgumentError(f"type {dtype!r}: expected one of {', '.join(TYPES)}")


def dtype_of(type):
    """The numpy dtype of a type number. bfloat16 is ml_dtypes' where that is installed, or else its
    bits as uint16."""
    if type in _DTYPES:
        return _DTYPES[type]
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    return np.dtype(ml_dtypes.bfloat16)


def _of_array(array, writable):
    code = _BY_DTYPE.get(array.dtype)
    if code is None:
        code = type_number(array.dtype)
    if type(array) is not np.ndarray and isinstance(array, np.ma.MaskedArray):
        raise ArgumentError("a masked array, whose mask no rank would see: pass its data, or what "
                            "filled() makes")
    flags = array.flags
    if not flags.c_contiguous and not flags.f_contiguous:
        raise ArgumentError("an array that is not contiguous: pass np.ascontiguousarray of it")
    if writable and not flags.writeable:
        raise ArgumentError("the result cannot be written into a read-only array")
    flat, strides = array, None
    if not flags.c_contiguous:
        flat, strides = array.T, tuple(stride // array.itemsize for stride in array.strides)
    try:
        address = ffi.from_buffer(flat)
    except ValueError: # A type that the buffer protocol has no letter for: ml_dtypes' bfloat16.
        address = ffi.from_buffer(flat.reshape(-1).view(np.uint8))
    return Buffer(address, array.size, code, array.shape, strides, array, array.dtype)


def _of_dlpack(tensor, writable):
    device = tensor.__dlpack_device__()[0]
    if device not in _HOST:
        raise UnsupportedError("device memory: move the tensor to the host first")
    capsule = tensor.__dlpack__()
    lent = ffi.cast("DLTensor *", _capsule_pointer(capsule, b"dltensor"))
    kind = lent.dtype
    name = f"{_KINDS.get(kind.code, 'other')}{kind.bits}"
    if name not in TYPES or kind.lanes != 1:
        raise ArgumentError(f"type {name} of {kind.lanes} lanes: expected one of "
                            f"{', '.join(TYPES)}")
    shape = tuple(lent.shape[i] for i in range(lent.ndim))
    strides = None
    if lent.strides != ffi.NULL:
        strides = tuple(lent.strides[i] for i in range(lent.ndim))
        if not _is_dense(shape, strides):
            raise ArgumentError("a tensor that is not contiguous: pass a contiguous one")
        if _is_in_c_order(shape, strides):
            strides = None
    count = 1
    for extent in shape:
        count *= extent
    address = ffi.cast("char *", lent.data) + lent.byte_offset if count else ffi.NULL
    return Buffer(address, count, TYPES[name], shape, strides, (tensor, capsule), None)


def _is_dense(shape, strides):
    """Whether the elements fill their memory, in whatever order of the axes."""
    return 0 in shape or _fills(sorted((strides[i], extent) for i, extent in enumerate(shape)
                                       if extent != 1))


def _is_in_c_order(shape, strides):
    return 0 in shape or _fills([(strides[i], shape[i]) for i in reversed(range(len(shape)))
                                 if shape[i] != 1])


def _fills(axes):
    """Whether each axis steps over all that the ones before it fill."""
    expected = 1
    for stride, extent in axes:
        if stride != expected:
            return False
        expected *= extent
    return True


def buffer(memory, writable=False):
    """What the library needs to know of `memory`. Raises ArgumentError, UnsupportedError."""
    if isinstance(memory, np.ndarray):
        return _of_array(memory, writable)
    if isinstance(memory, np.generic) and not writable:
        return _of_array(np.asarray(memory), False)
    if hasattr(memory, "__dlpack__"):
        return _of_dlpack(memory, writable)
    try:
        view = memoryview(memory)
    except TypeError:
        raise ArgumentError(f"{type(memory).__name__}: expected a numpy array, or what has the "
                            "buffer protocol or DLPack") from None
    if view.format == "c":
        view = view.cast("B")
    return _of_array(np.asarray(view), writable)


def like(given, shape):
    """A new array for a result, of the type of what was given, and in its order of memory."""
    if given.strides is not None and given.dtype is None:
        raise ArgumentError("a tensor that is not in C order: pass `out`")
    if given.dtype is not None:
        return np.empty(shape, given.dtype, order="C" if given.strides is None else "F")
    if given.type == TYPES["bfloat16"] and dtype_of(given.type).name != "bfloat16":
        raise ArgumentError("numpy has no bfloat16 without ml_dtypes: pass `out`")
    return np.empty(shape, dtype_of(given.type))


def view(address, count, type):
    """An array over memory of the library's."""
    return np.frombuffer(ffi.buffer(address, count * TYPE_BYTES[type]), dtype_of(type))

