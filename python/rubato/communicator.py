"""Communicators: which ranks talk to each other, and the collectives that they call.

Every rank calls the same collectives in the same order. An argument `input` or `out` is a numpy
array, or anything with the buffer protocol or DLPack; it is contiguous. Shapes do not matter to
the library, which sees elements in the order of memory: input and out must have the same. Where
`out` is left out a new array is made. In place means that `out` is `input`, or the part of it
that rubato.h names.
"""

import contextlib
import math
import sys
import weakref
from operator import index
from typing import Any, Callable, NamedTuple, Optional, Sequence

import numpy as np

from ._library import (OPERATORS, TYPES, TYPE_BYTES, WIRES, check, choice, constants, ffi, lib,
                       nanoseconds, said, text)
from .buffers import buffer, dtype_of, like, type_number
from .errors import ArgumentError, MismatchError
from .lagged import Lagged
from .operation import Operation
from .partial import Partial

NULL = ffi.NULL


class Peer(NamedTuple):
    """What was agreed about a rank when the communicator was made. Numbers count from 0 in the
    order of ranks; None: not known."""

    node: int
    host: int
    card: int
    numa_domain: Optional[int]
    copies: int
    transport: str
    latency_us: float
    bandwidth: float
    source: str
    processor: Optional[int]
    path: str


class Stats(NamedTuple):
    """Counters of a communicator since its beginning (rubato_stats)."""

    operations_in_flight: int
    operations: int
    bytes_sent: int
    bytes_received: int
    bytes_mapped: int
    wait_ns: int
    sleeps: int
    background_polls: int


def known(number):
    return None if number == 2**32 - 1 else number


class Communicator:
    """A group of ranks. Made by init, init_id, init_oob and split; a context manager, which
    finalizes it, or aborts it when the block ends by an exception, so that no other rank waits
    for this one.

    It may be used by several threads, if the order of collectives on it does not depend on a
    race. A collective that fails poisons it: later calls raise the first error at once.
    """

    def __init__(self, comm):
        self._comm = comm
        self._owned = weakref.WeakSet() # What ends with it.
        self._in_flight = set()
        self._arrays = weakref.WeakValueDictionary()
        self.rank = lib.rubato_rank(comm)
        self.size = lib.rubato_size(comm)

    rank: int
    "The number of this rank, from 0."
    size: int
    "The number of ranks."

    def _handle(self):
        if self._comm is None:
            raise ArgumentError("the communicator was finalized")
        return self._comm

    def _own(self, thing):
        self._owned.add(thing)

    def __repr__(self):
        state = f"rank {self.rank} of {self.size}" if self._comm else "finalized"
        return f"<rubato.Communicator: {state}>"

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.finalize()
            return
        with contextlib.suppress(Exception):
            self.abort()
            self.finalize()

    # ---- The end ----

    def finalize(self) -> None:
        """Collective: waits (bounded) until every rank has come, then frees everything, also when
        it raises: PeerError or TimeoutError because not all came, MismatchError when ranks have
        called different things, or a message was sent and never received. Calling it again does
        nothing.

        Arrays of alloc() are memory of the communicator: while some are referenced it raises
        ArgumentError and ends nothing.
        """
        if self._comm is None:
            return
        alive = len(self._arrays)
        if alive:
            raise ArgumentError(f"finalize: {alive} arrays of alloc() are still referenced")
        in_use = [getattr(thing, "_keep", None) for thing in self._owned]
        for thing in list(self._owned):
            thing._forget()
        self._in_flight.clear()
        comm, self._comm = self._comm, None
        status = lib.rubato_finalize(comm)
        del in_use # Until here the library may write to them.
        check(status)

    def abort(self) -> None:
        """Not collective, from any thread: ends every operation of this communicator with
        CancelledError, and those of its peers with PeerError. finalize() must follow, and then
        waits for none."""
        check(lib.rubato_abort(self._handle()))

    # ---- What the library is given ----

    def _result(self, given, out, shape, count, by_element=False):
        """Checks `out`, or makes one. `by_element`: elements meet at equal places in memory, so
        that any order will do that both have."""
        if given.strides is not None and not by_element:
            raise ArgumentError("input is not in C order, and is taken apart in blocks")
        if out is None:
            out = like(given, shape)
        result = buffer(out, writable=True)
        if result.type != given.type:
            raise ArgumentError("input and out are of different types")
        if result.count != count:
            raise ArgumentError(f"out has {result.count} elements: expected {count}")
        if result.strides != given.strides:
            raise ArgumentError("input and out have their elements in different orders of memory")
        return out, result

    def _block(self, given, what):
        """Elements of one of `size` equal blocks, and the shape of it."""
        count, rest = divmod(given.count, self.size)
        if rest:
            raise ArgumentError(f"{what} of {given.count} elements, which {self.size} ranks do not "
                                "divide")
        shape = given.shape
        if shape and shape[0] % self.size == 0:
            first = shape[0] // self.size
            return count, ((first,) + shape[1:] if first > 1 or len(shape) == 1 else shape[1:])
        return count, (count,)

    def _allreduce(self, input, out, op):
        given = buffer(input)
        out, result = self._result(given, out, given.shape, given.count, by_element=True)
        return (given.address, result.address, given.count, given.type,
                choice("op", OPERATORS, op)), out, (given, result)

    def _reduce(self, input, out, op, root):
        given = buffer(input)
        address, keep = NULL, None
        if self.rank == root:
            out, keep = self._result(given, out, given.shape, given.count, by_element=True)
            address = keep.address
        return (given.address, address, given.count, given.type,
                choice("op", OPERATORS, op), root), (out if keep else None), (given, keep)

    def _reduce_scatter(self, input, out, op):
        given = buffer(input)
        count, shape = self._block(given, "input")
        out, result = self._result(given, out, shape, count)
        return (given.address, result.address, count, given.type,
                choice("op", OPERATORS, op)), out, (given, result)

    def _allgather(self, input, out):
        given = buffer(input)
        out, result = self._result(given, out, (self.size,) + given.shape, given.count * self.size)
        return (given.address, result.address, given.count, given.type), out, (given, result)

    def _broadcast(self, memory, root):
        given = buffer(memory, writable=self.rank != root)
        return (given.address, given.count, given.type, root), memory, given

    def _alltoall(self, input, out):
        given = buffer(input)
        count = self._block(given, "input")[0]
        out, result = self._result(given, out, given.shape, given.count)
        return (given.address, result.address, count, given.type), out, (given, result)

    def _gather(self, input, out, root):
        given = buffer(input)
        address, keep = NULL, None
        if self.rank == root:
            out, keep = self._result(given, out, (self.size,) + given.shape,
                                     given.count * self.size)
            address = keep.address
        return (given.address, address, given.count, given.type,
                root), (out if keep else None), (given, keep)

    def _scatter(self, input, out, root):
        address, given = NULL, None
        if self.rank == root:
            given = buffer(input)
            count, shape = self._block(given, "input")
            out, result = self._result(given, out, shape, count)
            address = given.address
        elif out is None:
            raise ArgumentError("scatter: elsewhere than at root `out` says how much comes")
        else:
            result = buffer(out, writable=True)
        return (address, result.address, result.count, result.type, root), out, (given, result)

    def _sizes(self, what, numbers):
        given = np.atleast_1d(numbers)
        if given.shape != (self.size,):
            raise ArgumentError(f"{what} of shape {given.shape}: expected one for each of "
                                f"{self.size} ranks")
        if given.dtype.kind not in "iu" or given.min() < 0: # Nothing is rounded or wraps around.
            raise ArgumentError(f"{what} are {given.tolist()}: expected whole numbers from 0 on")
        return ffi.from_buffer("uint64_t[]", np.ascontiguousarray(given, np.uint64))

    def _places(self, what, numbers):
        return NULL if numbers is None else self._sizes(what, numbers)

    def _spread(self, given, extent, offsets):
        """A new array for blocks; what lies between them is zero."""
        out = like(given, (extent,))
        if offsets != NULL:
            out.fill(0)
        return out

    def _extent(self, counts, offsets):
        """How many elements the blocks reach over."""
        if offsets == NULL:
            return sum(counts)
        return max((o + c for o, c in zip(offsets, counts) if c), default=0)

    def _allgatherv(self, input, counts, out, offsets):
        given = buffer(input)
        sizes, places = self._sizes("counts", counts), self._places("offsets", offsets)
        if given.count != sizes[self.rank]:
            raise ArgumentError(f"input has {given.count} elements: counts say {sizes[self.rank]}")
        extent = self._extent(sizes, places)
        if out is None:
            out = self._spread(given, extent, places)
        result = buffer(out, writable=True)
        self._fits("out", result, extent, given)
        return (given.address, result.address, sizes, places, given.type), out, (given, result)

    def _fits(self, what, held, extent, other):
        if held.type != other.type:
            raise ArgumentError("input and out are of different types")
        if held.strides is not None or other.strides is not None:
            raise ArgumentError("an array that is not in C order, and is taken apart in blocks")
        if held.count < extent:
            raise ArgumentError(f"{what} has {held.count} elements: the blocks need {extent}")

    def _reduce_scatterv(self, input, counts, out, offsets, op):
        given = buffer(input)
        sizes, places = self._sizes("counts", counts), self._places("offsets", offsets)
        self._fits("input", given, self._extent(sizes, places), given)
        out, result = self._result(given, out, (sizes[self.rank],), sizes[self.rank])
        return (given.address, result.address, sizes, places, given.type,
                choice("op", OPERATORS, op)), out, (given, result)

    def _alltoallv(self, input, send_counts, receive_counts, out, send_offsets, receive_offsets):
        given = buffer(input)
        sends, send_places = (self._sizes("send_counts", send_counts),
                              self._places("send_offsets", send_offsets))
        receives, receive_places = (self._sizes("receive_counts", receive_counts),
                                    self._places("receive_offsets", receive_offsets))
        self._fits("input", given, self._extent(sends, send_places), given)
        extent = self._extent(receives, receive_places)
        if out is None:
            out = self._spread(given, extent, receive_places)
        result = buffer(out, writable=True)
        self._fits("out", result, extent, given)
        return (given.address, sends, send_places, result.address, receives, receive_places,
                given.type), out, (given, result)

    def _send(self, memory, peer, tag):
        given = buffer(memory)
        return (given.address, given.count, given.type, peer, tag), None, given

    def _recv(self, out, peer, tag):
        result = buffer(out, writable=True)
        return (result.address, result.count, result.type, peer, tag), out, result

    # ---- Blocking operations ----

    def _call(self, function, prepared):
        arguments, result, keep = prepared
        check(function(self._handle(), *arguments))
        del keep # Until here the buffers must be.
        return result

    def allreduce(self, input: Any, out: Any = None, op: str = "sum") -> Any:
        """out[i] = op over ranks of input[i], on every rank. Returns out, of input's shape. In
        place: out is input. `op`: "sum", "max", "min", "avg", "prod"."""
        return self._call(lib.rubato_allreduce, self._allreduce(input, out, op))

    def reduce(self, input: Any, out: Any = None, op: str = "sum", root: int = 0) -> Any:
        """As allreduce, the result at `root` only; elsewhere out is ignored and None is returned.
        """
        return self._call(lib.rubato_reduce, self._reduce(input, out, op, root))

    def reduce_scatter(self, input: Any, out: Any = None, op: str = "sum") -> Any:
        """`input` is `size` equal blocks; rank r gets block r of the reduction. Returns out:
        input's shape with the first axis divided by size, where that can be."""
        return self._call(lib.rubato_reduce_scatter, self._reduce_scatter(input, out, op))

    def allgather(self, input: Any, out: Any = None) -> Any:
        """Every rank's input on every rank. Returns out, of shape (size, *input.shape)."""
        return self._call(lib.rubato_allgather, self._allgather(input, out))

    def broadcast(self, buffer: Any, root: int = 0) -> Any:
        """`buffer` of `root` is copied to every rank's. Returns buffer."""
        return self._call(lib.rubato_broadcast, self._broadcast(buffer, root))

    def alltoall(self, input: Any, out: Any = None) -> Any:
        """`input` is `size` equal blocks: block r goes to rank r, and block r of out comes from
        it. Returns out, of input's shape."""
        return self._call(lib.rubato_alltoall, self._alltoall(input, out))

    def gather(self, input: Any, out: Any = None, root: int = 0) -> Any:
        """As allgather, the result at `root` only; elsewhere out is ignored and None is returned.
        """
        return self._call(lib.rubato_gather, self._gather(input, out, root))

    def scatter(self, input: Any = None, out: Any = None, root: int = 0) -> Any:
        """`input` of `root` (elsewhere ignored) is `size` equal blocks; rank r gets block r.
        Elsewhere than at root `out` must be given. Returns out."""
        return self._call(lib.rubato_scatter, self._scatter(input, out, root))

    def allgatherv(self, input: Any, counts: Sequence[int], out: Any = None,
                   offsets: Optional[Sequence[int]] = None) -> Any:
        """As allgather with blocks of counts[r] elements, which come to offsets[r] (None:
        packed). Both are the same on all ranks. Returns out, of one axis if it is made here, with
        zeros between blocks."""
        return self._call(lib.rubato_allgatherv, self._allgatherv(input, counts, out, offsets))

    def reduce_scatterv(self, input: Any, counts: Sequence[int], out: Any = None,
                        offsets: Optional[Sequence[int]] = None, op: str = "sum") -> Any:
        """As reduce_scatter with blocks of counts[r] elements at offsets[r] (None: packed). Both
        are the same on all ranks. Returns out, of counts[rank] elements."""
        return self._call(lib.rubato_reduce_scatterv,
                          self._reduce_scatterv(input, counts, out, offsets, op))

    def alltoallv(self, input: Any, send_counts: Sequence[int], receive_counts: Sequence[int],
                  out: Any = None, send_offsets: Optional[Sequence[int]] = None,
                  receive_offsets: Optional[Sequence[int]] = None) -> Any:
        """As alltoall with blocks of any length: block r of input goes to rank r, block r of out
        comes from it. What one sends and the other expects must be equal: MismatchError
        otherwise."""
        return self._call(lib.rubato_alltoallv,
                          self._alltoallv(input, send_counts, receive_counts, out, send_offsets,
                                          receive_offsets))

    def barrier(self) -> None:
        """Returns when every rank has called it."""
        check(lib.rubato_barrier(self._handle()))

    def send(self, buffer: Any, peer: int, tag: int = 0) -> None:
        """Sends to rank `peer`, whose recv has the same tag, count and type. May wait for it."""
        self._call(lib.rubato_send, self._send(buffer, peer, tag))

    def recv(self, out: Any, peer: int, tag: int = 0) -> Any:
        """Receives from rank `peer`. Returns out."""
        return self._call(lib.rubato_recv, self._recv(out, peer, tag))

    def sendrecv(self, input: Any, to: int, out: Any, source: int, send_tag: int = 0,
                 receive_tag: int = 0) -> Any:
        """Sends `input` to rank `to` and receives out from rank `source` at once, neither waiting
        for the other. Both are of one type; out is not input. Returns out."""
        given, result = buffer(input), buffer(out, writable=True)
        if given.type != result.type:
            raise ArgumentError("sendrecv: input and out have different types")
        return self._call(lib.rubato_sendrecv, (
            (given.address, given.count, to, send_tag, result.address, result.count, source,
             receive_tag, given.type), out, (given, result)))

    # ---- Persistent operations ----

    def _make(self, function, prepared):
        return Operation(self, function, *prepared)

    def op_allreduce(self, input: Any, out: Any = None, op: str = "sum") -> Operation:
        """allreduce as a persistent operation. Collective, as all that follow but send and recv."""
        return self._make(lib.rubato_op_allreduce, self._allreduce(input, out, op))

    def op_allreduce_helped(self, input: Any, out: Any = None, op: str = "sum") -> Operation:
        """An exact allreduce for ranks that start at different times: while the last one is
        awaited the others reduce what they have (StragglAR, arXiv 2505.23523)."""
        return self._make(lib.rubato_op_allreduce_helped, self._allreduce(input, out, op))

    def op_reduce(self, input: Any, out: Any = None, op: str = "sum", root: int = 0) -> Operation:
        """reduce as a persistent operation."""
        return self._make(lib.rubato_op_reduce, self._reduce(input, out, op, root))

    def op_reduce_scatter(self, input: Any, out: Any = None, op: str = "sum") -> Operation:
        """reduce_scatter as a persistent operation."""
        return self._make(lib.rubato_op_reduce_scatter, self._reduce_scatter(input, out, op))

    def op_allgather(self, input: Any, out: Any = None) -> Operation:
        """allgather as a persistent operation."""
        return self._make(lib.rubato_op_allgather, self._allgather(input, out))

    def op_broadcast(self, buffer: Any, root: int = 0) -> Operation:
        """broadcast as a persistent operation."""
        return self._make(lib.rubato_op_broadcast, self._broadcast(buffer, root))

    def op_alltoall(self, input: Any, out: Any = None) -> Operation:
        """alltoall as a persistent operation."""
        return self._make(lib.rubato_op_alltoall, self._alltoall(input, out))

    def op_gather(self, input: Any, out: Any = None, root: int = 0) -> Operation:
        """gather as a persistent operation."""
        return self._make(lib.rubato_op_gather, self._gather(input, out, root))

    def op_scatter(self, input: Any = None, out: Any = None, root: int = 0) -> Operation:
        """scatter as a persistent operation."""
        return self._make(lib.rubato_op_scatter, self._scatter(input, out, root))

    def op_allgatherv(self, input: Any, counts: Sequence[int], out: Any = None,
                      offsets: Optional[Sequence[int]] = None) -> Operation:
        """allgatherv as a persistent operation."""
        return self._make(lib.rubato_op_allgatherv, self._allgatherv(input, counts, out, offsets))

    def op_reduce_scatterv(self, input: Any, counts: Sequence[int], out: Any = None,
                           offsets: Optional[Sequence[int]] = None, op: str = "sum") -> Operation:
        """reduce_scatterv as a persistent operation."""
        return self._make(lib.rubato_op_reduce_scatterv,
                          self._reduce_scatterv(input, counts, out, offsets, op))

    def op_alltoallv(self, input: Any, send_counts: Sequence[int], receive_counts: Sequence[int],
                     out: Any = None, send_offsets: Optional[Sequence[int]] = None,
                     receive_offsets: Optional[Sequence[int]] = None) -> Operation:
        """alltoallv as a persistent operation."""
        return self._make(lib.rubato_op_alltoallv,
                          self._alltoallv(input, send_counts, receive_counts, out, send_offsets,
                                          receive_offsets))

    def op_barrier(self) -> Operation:
        """barrier as a persistent operation."""
        return self._make(lib.rubato_op_barrier, ((), None, None))

    def op_send(self, buffer: Any, peer: int, tag: int = 0) -> Operation:
        """send as a persistent operation. Not collective."""
        return self._make(lib.rubato_op_send, self._send(buffer, peer, tag))

    def op_recv(self, out: Any, peer: int, tag: int = 0) -> Operation:
        """recv as a persistent operation. Not collective."""
        return self._make(lib.rubato_op_recv, self._recv(out, peer, tag))

    # ---- Relaxed operations ----

    def partial(self, count: int, dtype: Any = "float32", op: str = "avg",
                policy: str = "solo", **options: Any) -> Partial:
        """A partial allreduce, which does not wait for the slowest: see Partial. Collective."""
        return Partial(self, count, type_number(dtype), choice("op", OPERATORS, op), policy,
                       options)

    def lagged(self, count: int, dtype: Any = "float32", op: str = "avg", lag: int = 1) -> Lagged:
        """A lagged allreduce, whose results are applied `lag` steps later: see Lagged.
        Collective."""
        return Lagged(self, count, type_number(dtype), choice("op", OPERATORS, op), lag)

    # ---- Groups, memory, settings ----

    def split(self, color: Optional[int], key: int = 0) -> "Optional[Communicator]":
        """Collective: a communicator of the ranks that give the same color, numbered by key, then
        by rank. With None a rank takes part and gets None. It shares nothing with this one from
        then on."""
        place = ffi.new("rubato_comm **")
        number = constants["RUBATO_COLOR_NONE"] if color is None else color
        check(lib.rubato_split(self._handle(), number, key, place))
        return Communicator(place[0]) if place[0] != NULL else None

    def alloc(self, shape: Any, dtype: Any = "float32") -> np.ndarray:
        """An array of zeros that other ranks of this node read and write in place and that
        networks find registered: collectives on it copy least. It ends with its last reference,
        which must be before the communicator's end."""
        code = type_number(dtype)
        shape = tuple(map(index, np.atleast_1d(shape) if np.ndim(shape) == 0 else shape))
        if min(shape, default=0) < 0:
            raise ArgumentError(f"alloc: an array of shape {shape}")
        count = math.prod(shape)
        place = ffi.new("void **")
        check(lib.rubato_alloc(self._handle(), count * TYPE_BYTES[code], place))
        lent = ffi.buffer(place[0], count * TYPE_BYTES[code])
        owner = np.frombuffer(lent, np.uint8) if count else np.empty(0, np.uint8)
        memory = place[0]
        self._arrays[int(ffi.cast("uintptr_t", memory))] = owner
        weakref.finalize(owner, self._give_back, memory).atexit = False
        return owner.view(dtype_of(code)).reshape(shape)

    def _give_back(self, memory):
        if self._comm is not None:
            lib.rubato_free(self._comm, memory)

    def register(self, array: Any) -> None:
        """Makes memory of the caller's known to networks, which then need not do so at each call.
        """
        memory = buffer(array)
        check(lib.rubato_register(self._handle(), memory.address,
                                  memory.count * TYPE_BYTES[memory.type]))

    def unregister(self, array: Any) -> None:
        """Before memory that was registered is freed."""
        check(lib.rubato_unregister(self._handle(), buffer(array).address))

    def set_algorithm(self, operation: str, algorithm: str) -> None:
        """Forces an algorithm for one kind of operation; "auto" undoes it. The same on all ranks.
        """
        check(lib.rubato_set_algorithm(self._handle(), operation.encode(), algorithm.encode()))

    def set_timeout(self, seconds: Optional[float]) -> None:
        """The deadline of every wait without its own that begins from now on; None: the one that
        the communicator began with. Ranks may differ."""
        check(lib.rubato_set_timeout(self._handle(), nanoseconds(seconds)))

    def set_accumulate(self, accumulate: str) -> None:
        """How 16-bit floats are added up: "step" in float32 within each step of the algorithm,
        "whole" in float32 from inputs to result. The same on all ranks."""
        check(lib.rubato_set_accumulate(self._handle(),
                                        choice("accumulate", {"step": 0, "whole": 1}, accumulate)))

    def set_wire(self, wire: str, feedback: bool = False) -> None:
        """In what form float32 travels from now on: "float32", "bfloat16" or "int8". `feedback`:
        what rounding loses is added to what is rounded next, of persistent operations. The same
        on all ranks."""
        check(lib.rubato_set_wire(self._handle(), choice("wire", WIRES, wire), feedback))

    # ---- Insight ----

    def peer(self, rank: int) -> Peer:
        """Where a rank is, and what carries messages to it."""
        found = ffi.new("rubato_peer *", {"size_bytes": ffi.sizeof("rubato_peer")})
        check(lib.rubato_get_peer(self._handle(), rank, found))
        return Peer(found.node, found.host, found.card, known(found.numa_domain), found.copies,
                    text(found.transport), found.latency_us, found.bandwidth, text(found.source),
                    known(found.processor), text(found.path))

    def explain(self, operation: str, count: int, dtype: Any = "float32") -> str:
        """Which algorithm an operation would use and why, with the times that the cost model
        gives each."""
        code = type_number(dtype)
        return said(lambda chars, size: lib.rubato_explain(self._handle(), operation.encode(),
                                                           count, code, chars, size))

    def stats(self) -> Stats:
        """What was done so far."""
        found = ffi.new("rubato_stats *", {"size_bytes": ffi.sizeof("rubato_stats")})
        check(lib.rubato_get_stats(self._handle(), found))
        return Stats(*(getattr(found, name) for name in Stats._fields))

    def dump(self, file: Any = None) -> None:
        """Writes one line for each operation in flight to a file, by its descriptor (standard
        error)."""
        file = file or sys.stderr
        file.flush()
        lib.rubato_dump(self._handle(), file.fileno())

    def now(self) -> int:
        """This rank's clock in ns: monotonic."""
        return lib.rubato_now(self._handle())


# ---- Beginning ----

def _options(timeout, transport, secret, heap_bytes):
    """rubato_options, and what it points to."""
    options = ffi.new("rubato_options *", {"size_bytes": ffi.sizeof("rubato_options")})
    keep = [options]
    if timeout is not None:
        options.timeout_ns = nanoseconds(timeout)
    if transport is not None:
        keep.append(ffi.new("char[]", transport.encode()))
        options.transport = keep[-1]
    if secret is not None:
        keep.append(ffi.from_buffer(secret))
        options.secret, options.secret_bytes = keep[-1], len(secret)
    if heap_bytes is not None:
        options.heap_bytes = heap_bytes
    return options, keep


def _begin(begin, timeout, transport, secret, heap_bytes):
    place = ffi.new("rubato_comm **")
    options, keep = _options(timeout, transport, secret, heap_bytes)
    status = begin(place, options)
    del keep
    check(status)
    return Communicator(place[0])


def init(*, timeout: Optional[float] = None, transport: Optional[str] = None,
         secret: Optional[bytes] = None, heap_bytes: Optional[int] = None) -> Communicator:
    """Joins the job that the environment describes (rubato-run, torchrun, mpirun, srun;
    RUBATO_RANK, RUBATO_SIZE, RUBATO_ROOT); without any, a communicator of one rank. Blocks until
    all ranks are there, at most `timeout` seconds, which is also that of every later wait
    (RUBATO_TIMEOUT, 60 s).

    Errors: ArgumentError (bad or incomplete variables), TimeoutError (names the ranks that are
    missing), AuthenticationError (wrong secret), MismatchError (two ranks with one number),
    SystemError.
    """
    return _begin(lib.rubato_init, timeout, transport, secret, heap_bytes)


def create_id() -> bytes:
    """256 bytes that name a job about to start, for init_id. The caller must be rank 0 of it.
    Whoever has them can join: pass them on as a password."""
    made = ffi.new("rubato_id *")
    check(lib.rubato_id_create(made))
    return bytes(made.bytes)


def init_id(id: bytes, rank: int, size: int, *, timeout: Optional[float] = None,
            transport: Optional[str] = None, heap_bytes: Optional[int] = None) -> Communicator:
    """Joins the job `id` as `rank` of `size`. Ranks may be threads."""
    made = ffi.new("rubato_id *")
    if len(id) != ffi.sizeof("rubato_id"):
        raise ArgumentError(f"an id of {len(id)} bytes: expected {ffi.sizeof('rubato_id')}")
    ffi.memmove(made, id, len(id))
    return _begin(lambda place, options: lib.rubato_init_id(place, made, rank, size, options),
                  timeout, transport, None, heap_bytes)


def init_oob(allgather: Callable[[bytes], Sequence[bytes]], rank: int, size: int, *,
             timeout: Optional[float] = None, transport: Optional[str] = None,
             heap_bytes: Optional[int] = None) -> Communicator:
    """Joins a job whose processes can already talk to each other: `allgather` takes this rank's
    bytes and returns those of all ranks, in order; mpi4py's comm.allgather is one. Needs neither
    environment, port nor secret. An exception in it ends the start on every rank, and is raised
    here."""
    raised = []

    @ffi.callback("int(void *, const void *, void *, size_t)", error=1)
    def gather(_, given, out, size_bytes):
        try:
            parts = allgather(bytes(ffi.buffer(given, size_bytes)))
            if len(parts) != size or any(len(part) != size_bytes for part in parts):
                raise MismatchError(f"allgather returned {len(parts)} parts of "
                                    f"{sorted({len(part) for part in parts})} bytes: expected "
                                    f"{size} of {size_bytes}")
            for i, part in enumerate(parts):
                ffi.memmove(ffi.cast("char *", out) + i * size_bytes, part, size_bytes)
        except BaseException as error: # noqa: B902 -- it goes on when the library has returned.
            raised.append(error)
            return 1
        return 0

    try:
        return _begin(lambda place, options: lib.rubato_init_oob(place, gather, NULL, rank, size,
                                                                 options),
                      timeout, transport, None, heap_bytes)
    except Exception:
        if raised:
            raise raised[0]
        raise
