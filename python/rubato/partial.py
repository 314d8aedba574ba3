"""Partial allreduce: rounds of an allreduce that do not wait for the slowest rank (rubato.h,
"Relaxed operations"; Li et al., PPoPP 2020)."""

import contextlib
from typing import Any, Iterator, NamedTuple, Optional, Tuple

import numpy as np

from ._library import WIRES, check, choice, ffi, lib, nanoseconds
from .buffers import view
from .relaxed import Relaxed

ROUNDS = {"aligned": 0, "free": 1}
LATE = {"accumulate": 0, "latest": 1, "drop": 2}
COLLECTION = {"each": 0, "own": 1, "latest": 2}
NORMALISE = {"ranks": 0, "contributors": 1, "weight": 2, "remaining": 3}
MEMBERS = {"ranks": 0, "nodes": 1}
CHOICES = {"rounds": ROUNDS, "late": LATE, "collection": COLLECTION, "normalise": NORMALISE,
           "members": MEMBERS, "wire": WIRES}
NUMBERS = ("depth", "full_every", "max_absence", "seed")
SECONDS = ("window",)
MOST_SECONDS = 2**63 / 1e9  # In nanoseconds.
FLAGS = ("zeroed", "feedback")

CONTRIBUTION = np.dtype([("first_step", np.uint64), ("last_step", np.uint64),
                         ("weight", np.uint64), ("count", np.uint32), ("fresh", np.uint32),
                         ("member", np.uint32), ("reserved", np.uint32)])
assert CONTRIBUTION.itemsize == ffi.sizeof("rubato_contribution")


class Round(NamedTuple):
    """What a round held: the same on every rank. `ranks` is an array with a record for each rank:
    first_step, last_step, weight, count (0: nothing of it is in), fresh (it was in time), member
    (it is in the result here)."""

    round: int
    contributors: int
    fresh: int
    weight: int
    divisor: float
    staleness_min: int
    staleness_max: int
    discarded: int
    ranks: np.ndarray


class PartialStats(NamedTuple):
    """Counters of a partial allreduce: delivered + pending + discarded = committed."""

    quorum: int
    rounds: int
    full_rounds: int
    committed: int
    delivered: int
    discarded: int
    pending: int
    merged: int
    round_ns: Tuple[int, ...]
    wait_ns: Tuple[int, ...]
    call_ns: int


def _options(policy, given):
    """rubato_partial_options, and what it points to."""
    options = ffi.new("rubato_partial_options *",
                      {"size_bytes": ffi.sizeof("rubato_partial_options")})
    keep = [options]
    check(lib.rubato_policy_parse(policy.encode(), options))
    for name, value in given.items():
        if name in CHOICES:
            value = choice(name, CHOICES[name], value)
            setattr(options, name, ffi.cast(ffi.typeof(getattr(options, name)), value)
                    if not isinstance(getattr(options, name), int) else value)
        elif name in NUMBERS:
            setattr(options, name, value)
        elif name in SECONDS:
            if not 0 <= value < MOST_SECONDS:  # Which a NaN is not, either.
                raise ValueError(f"{name} is {value!r}: expected seconds, from 0 on")
            setattr(options, name + "_ns", round(value * 1e9))
        elif name in FLAGS:
            setattr(options, name, bool(value))
        elif name == "state":
            if value is not None:
                keep.append(ffi.from_buffer(value))
                options.state, options.state_bytes = keep[-1], len(value)
        else:
            raise TypeError(f"partial() has no option {name!r}: it has "
                            f"{', '.join([*CHOICES, *NUMBERS, *SECONDS, *FLAGS, 'state'])}")
    return options, keep


class Partial(Relaxed):
    """A partial allreduce of vectors of `count` elements. Made by Communicator.partial, on every
    rank with the same options:

    policy      "solo", "majority", "quorum:K", "deadline:T", "adaptive[:K]", "wagma:S": who
                opens a round
    rounds      "aligned" (contribution k is for round k) or "free"
    late        "accumulate", "latest" or "drop": what becomes of a contribution that missed
                its round
    collection  "each", "own" or "latest": which finished rounds collect() gives
    normalise   "ranks", "contributors", "weight" or "remaining": what "avg" divides by
    members     "ranks" or "nodes": whom the policy counts
    window      seconds that a round waits for ranks that it opens without
    depth, full_every, max_absence, seed, zeroed, wire, feedback, state: as in
                rubato_partial_options

    One step of an application, on every rank:

        partial.contribute(gradient, step)
        for result, round in partial.collect():
            apply(result)

    One thread at a time.
    """

    _name = "partial allreduce"

    def __init__(self, comm, count, type, op, policy, options):
        place = ffi.new("rubato_partial **")
        built, keep = _options(policy, options)
        check(lib.rubato_partial_create(comm._handle(), count, type, op, built, place))
        del keep
        super().__init__(comm, place[0], count, type)
        self._size = comm.size
        self._round = ffi.new("rubato_round *", {"size_bytes": ffi.sizeof("rubato_round")})

    def acquire(self) -> np.ndarray:
        """Leases a buffer to write the next contribution into: valid until commit(). What it
        holds is undefined, unless the option `zeroed` is set."""
        return self._leased(lib.rubato_partial_acquire)

    def commit(self, step: int, weight: int = 1) -> None:
        """Publishes the leased buffer as contribution `step`, which must grow from call to call.
        Does not block."""
        check(lib.rubato_partial_commit(self._handle(), step, weight))

    def contribute(self, vector: Any, step: int, weight: int = 1) -> None:
        """Copies `vector` and commits it. Does not block."""
        given = self._given(vector)
        check(lib.rubato_partial_contribute(self._handle(), given.address, step, weight))

    @contextlib.contextmanager
    def collect_view(self, timeout: Optional[float] = None
                     ) -> Iterator[Optional[Tuple[np.ndarray, Round]]]:
        """Lends the next result for the time of a `with` block: (read-only array, Round), or None
        when there is none to wait for. Blocks while this rank waits for a round that is not
        complete, `timeout` seconds at most (None: the communicator's; 0: looks only, and None
        then means "not yet", too). TimeoutError: call again."""
        place = ffi.new("const void **")
        check(lib.rubato_partial_collect_view(self._handle(), place, self._round,
                                              nanoseconds(timeout)))
        if place[0] == ffi.NULL:
            yield None
            return
        result = view(ffi.cast("void *", place[0]), self.count, self._type)
        result.flags.writeable = False
        try:
            yield result, self._round_seen()
        finally:
            if self._operation is not None:
                check(lib.rubato_partial_release(self._operation))

    def collect(self, timeout: Optional[float] = None) -> Iterator[Tuple[np.ndarray, Round]]:
        """All results that are there to collect, one after the other, as (array, Round); waits
        where the policy says that this rank waits. Each array is the caller's."""
        while True:
            with self.collect_view(timeout) as lent:
                if lent is None:
                    return
                got = lent[0].copy(), lent[1]
            yield got

    def _round_seen(self):
        seen = self._round
        ranks = np.frombuffer(ffi.buffer(ffi.cast("void *", seen.ranks),
                                         self._size * CONTRIBUTION.itemsize),
                              CONTRIBUTION).copy()
        return Round(seen.round, seen.contributors, seen.fresh, seen.weight, seen.divisor,
                     seen.staleness_min, seen.staleness_max, seen.discarded, ranks)

    def drain(self) -> None:
        """Collective, though it does not block: the end of an era. Then collect until there is
        none: all that was committed is delivered by then, on every rank the same rounds."""
        check(lib.rubato_partial_drain(self._handle()))

    def leave(self) -> None:
        """This rank commits no more; it goes on relaying until free()."""
        check(lib.rubato_partial_leave(self._handle()))

    def pending(self) -> Optional[Tuple[np.ndarray, np.void]]:
        """After a PeerError: what this rank contributed that is in no round of the survivors', as
        (array, record as of Round.ranks); None: nothing."""
        place = ffi.new("const void **")
        record = ffi.new("rubato_contribution *")
        check(lib.rubato_partial_pending(self._handle(), place, record))
        if place[0] == ffi.NULL:
            return None
        vector = view(ffi.cast("void *", place[0]), self.count, self._type).copy()
        return vector, np.frombuffer(ffi.buffer(record), CONTRIBUTION)[0].copy()

    def save(self) -> bytes:
        """What a drained one goes on from, for the option `state` of another one, in this job or
        a later one of as many ranks. After a drain, when nothing is left to collect."""
        size = ffi.new("uint64_t *")
        check(lib.rubato_partial_save(self._handle(), ffi.NULL, size))
        state = bytearray(size[0])
        check(lib.rubato_partial_save(self._handle(), ffi.from_buffer(state), size))
        return bytes(state[:size[0]])

    def residual(self) -> np.ndarray:
        """What rounding has lost so far, with the options `wire` and `feedback`: an array that is
        the library's until free(), to be read and written while no round runs: before the first
        commit, and when save() would work. A barrier stands between this and the next commit on
        any rank. Of no elements where one rank is alone. ArgumentError: nothing is fed back; not
        drained, or not all collected."""
        lost, count = ffi.new("float **"), ffi.new("uint64_t *")
        check(lib.rubato_partial_residual(self._handle(), lost, count))
        return np.frombuffer(ffi.buffer(lost[0], count[0] * 4), np.float32) if count[0] > 0 \
            else np.empty(0, np.float32)

    def stats(self) -> PartialStats:
        """What was done so far. Times in ns: of rounds open, joining, exchanging records,
        reducing."""
        found = ffi.new("rubato_partial_stats *",
                        {"size_bytes": ffi.sizeof("rubato_partial_stats")})
        check(lib.rubato_partial_get_stats(self._handle(), found))
        values = (getattr(found, name) for name in PartialStats._fields)
        return PartialStats(*(v if isinstance(v, int) else tuple(v) for v in values))

    def free(self) -> None:
        """Collective: ends it on every rank. What is pending is reduced, and nobody collects it:
        drain and collect first."""
        self._end(lib.rubato_partial_free)
