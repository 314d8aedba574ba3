"""The C library, found beside this package or where the system has it, and what is shared by all
that calls it."""

import pathlib

from . import _abi
from .errors import error_of

ffi = _abi.ffi
constants = _abi.constants
VERSION = ".".join(str(constants["RUBATO_VERSION_" + part]) for part in ("MAJOR", "MINOR", "PATCH"))
NAME = "librubato.so." + str(constants["RUBATO_VERSION_MAJOR"])
FOLDER = pathlib.Path(__file__).resolve().parent


def library_path():
    """The file of the C library: the one of this package, if it has one, or else the name by which
    the system's loader finds it."""
    own = FOLDER / "lib" / NAME
    return str(own) if own.exists() else NAME


def _open():
    lib = ffi.dlopen(library_path())
    found = text(lib.rubato_version())
    if found.split(" ")[0] != VERSION:
        raise ImportError(f"{library_path()} is version {found}, and this package is of {VERSION}")
    return lib


def text(chars):
    """A C string, as str."""
    return ffi.string(chars).decode("utf-8", "replace")


lib = _open()


def check(status):
    """Raises what a status of the library stands for, with the library's own sentence."""
    if status != 0:
        raise error_of(status, text(lib.rubato_error_text()))


def said(write, size=4096):
    """What a function of the library writes into a text of at most `size` bytes."""
    chars = ffi.new("char[]", size)
    check(write(chars, size))
    return text(chars)


def names_of(name, count):
    """A dict from names to numbers, of an enum of the library that has a function of names."""
    return {text(name(i)): i for i in range(count)}


OPERATORS = names_of(lib.rubato_operator_name, constants["RUBATO_OPERATOR_COUNT"])
TYPES = names_of(lib.rubato_type_name, constants["RUBATO_TYPE_COUNT"])
TYPE_BYTES = [lib.rubato_type_bytes(i) for i in range(constants["RUBATO_TYPE_COUNT"])]
WIRES = names_of(lib.rubato_wire_name, constants["RUBATO_WIRE_COUNT"])


def choice(what, table, name):
    """The number of a name, or an error that says which names there are."""
    try:
        return table[name]
    except (KeyError, TypeError):
        raise ValueError(f"{what} is {name!r}: expected {', '.join(map(repr, table))}") from None


def nanoseconds(seconds):
    """Timeouts: None is the communicator's, 0 is no wait at all, else seconds; math.inf
    is as long as the library can count."""
    if seconds is None:
        return constants["RUBATO_TIMEOUT_DEFAULT"]
    if not seconds >= 0: # Which a NaN is not, either.
        raise ValueError(f"a timeout of {seconds} s")
    return max(constants["RUBATO_NO_WAIT"], round(min(seconds * 1e9, 2.0**63)))
