#!/usr/bin/env python3
"""test_null.py LIBRARY HEADER... -- every public function, called with nothing (NULL and 0), comes
back: with ARGUMENT where it has a status to give, or as the headers say."""

import ctypes
import os
import re
import struct
import sys
import unittest

from programs import main

LIBRARY, HEADERS = sys.argv[1], sys.argv[2:]
del sys.argv[1:]

OK, ARGUMENT = 0, -1
# Whose arguments may be left out, or are none.
GOOD = {"rubato_finalize", "rubato_job_explain", "rubato_partial_free", "rubato_lagged_free"}
OTHERS = {"rubato_rank": 2 ** 32 - 1, "rubato_size": 0, "rubato_now": 0}


def text_of(header):
    with open(header) as file:
        return file.read()


def functions():
    """(what it returns, its name, how many arguments it has) of each."""
    found = []
    for header in HEADERS:
        text = re.sub(r"/\*.*?\*/", "", text_of(header), flags=re.S)
        for returns, name, arguments in re.findall(
                r"RUBATO_API\s+(?:RUBATO_NODISCARD\s+)?([^;()]*?)\b(rubato_\w+)\(([^;]*)\);", text):
            count = 0 if arguments == "void" else 1 + len(re.findall(r",(?![^()]*\))", arguments))
            found.append((returns.strip(), name, count))
    return found


def called(returns, name, count):
    """The status of a process that has made the call, and what was returned."""
    function = getattr(ctypes.CDLL(LIBRARY), name)
    function.argtypes = [ctypes.c_uint64] * count
    function.restype = ctypes.c_uint64 if returns == "uint64_t" else ctypes.c_uint32
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, struct.pack("Q", function(*[0] * count)))
        os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as pipe:
        value = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return status, struct.unpack("Q", value)[0] if status == 0 else None


class Nothing(unittest.TestCase):
    def test_each_function_bears_it(self):
        every = functions()
        words = sum(len(re.findall("^RUBATO_API", text_of(header), re.M)) for header in HEADERS)
        self.assertEqual(len(every), words)
        for returns, name, count in every:
            with self.subTest(name):
                status, value = called(returns, name, count)
                self.assertEqual(status, 0)
                if returns == "rubato_status":
                    expected = OK if name in GOOD else ARGUMENT
                    self.assertEqual(ctypes.c_int32(value).value, expected)
                elif name in OTHERS:
                    self.assertEqual(value, OTHERS[name])


main()
