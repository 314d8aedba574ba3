"""One exception for each status of the library. `str(error)` is the library's sentence, which names
the rank where one is to blame; `error.status` is the number."""

import builtins


class Error(RuntimeError):
    """What the library reports. All others here derive from it."""

    status = 0


class ArgumentError(Error, ValueError):
    """A mistake of the caller's."""

    status = -1


class OutOfMemoryError(Error, MemoryError):
    """Memory or another resource of this process ran out."""

    status = -2


class TimeoutError(Error, builtins.TimeoutError):
    """The deadline passed. The sentence says which ranks were absent."""

    status = -3


class PeerError(Error, ConnectionError):
    """Another rank ended, left or became unreachable. The sentence names it."""

    status = -4


class MismatchError(Error):
    """Ranks called different things. The sentence prints both sides."""

    status = -5


class UnsupportedError(Error, NotImplementedError):
    """Not in this build, on this transport or on this machine."""

    status = -6


class SystemError(Error, OSError):
    """The operating system or a library below refused."""

    status = -7


class AuthenticationError(Error, PermissionError):
    """A peer did not prove that it knows the job's secret."""

    status = -8


class CancelledError(Error):
    """Ended by cancel, abort or finalize."""

    status = -9


class InternalError(Error):
    """A fault of the library itself."""

    status = -10


_BY_STATUS = {kind.status: kind for kind in Error.__subclasses__()}


def error_of(status, sentence):
    """The exception of a status."""
    error = _BY_STATUS.get(status, Error)(sentence)
    error.status = status
    return error
