#!/usr/bin/env python3
"""test_verbs_paths.py PROGRAM SANITIZER -- instructions of the verbs transport for a message of 8
bytes and for one of 1 MiB, both ends together, outside of libibverbs (callgrind); and how often it
enters libibverbs, beside a plain loop that makes the same transfers. The bounds are what was
counted, and a tenth.

Two endpoints in one thread, on mock devices that only calls move: it is the same each time."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM, SANITIZER = sys.argv[1:3]
FEW, MANY = 10, 410
ENVIRONMENT = {**os.environ, "VERBS_MOCK_CONFIG": "devices=1"}  # One rail.
MESSAGES = 2 * (MANY - FEW)
# libibverbs' own, by the functions of the mock that are entered: what they do is not counted.
CALLS = ("post_send", "post_recv", "poll_cq", "req_notify_cq", "ibv_reg_mr", "ibv_dereg_mr")

# Instructions a message, less those of the loop of the program itself.
INSTRUCTIONS = {"small": 1380, "large": 6320}
ENTRIES = {"small": 0.1, "large": 4.1}  # Of libibverbs, a message, more than the plain loop.


def counted(whose, what, times, folder):
    """Instructions outside of libibverbs and of the program's own loop; entries into it."""
    out = f"{folder}/callgrind"
    tool = ["valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}"]
    tool += [f"--toggle-collect={call}" for call in CALLS] + ["--collect-atstart=yes"]
    got = subprocess.run([*tool, PROGRAM, whose, what, str(times)], check=True,
                         stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    entries = int(re.search(r"(\d+) entries", got.stdout)[1])
    total = 0
    with os.popen(f"callgrind_annotate --threshold=100 {out}") as lines:
        for line in lines:
            found = re.match(r"\s*([\d,]+) \([^)]*\)\s+\S+?:(\w+)", line)
            if found and found[2] not in ("message", "main"):
                total += int(found[1].replace(",", ""))
    return total, entries


def each(whose, what, folder):
    few, many = (counted(whose, what, times, folder) for times in (FEW, MANY))
    return [(b - a) / MESSAGES for a, b in zip(few, many)]


def main():
    if SANITIZER != "none":
        print("skipped: a sanitizer's instructions are none of ours")
        return 77
    for tool in ("valgrind", "callgrind_annotate"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed")
            return 77
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for what, bound in INSTRUCTIONS.items():
            ours, our_entries = each("ours", what, folder)
            plain, plain_entries = each("plain", what, folder)
            print(f"{what}: {ours:.0f} instructions a message outside of libibverbs, at most "
                  f"{bound}; a plain loop {plain:.0f}")
            print(f"{what}: {our_entries:.2f} calls of libibverbs, a plain loop "
                  f"{plain_entries:.2f}, at most {ENTRIES[what]} more")
            failed |= ours > bound or our_entries > plain_entries + ENTRIES[what]
            failed |= plain == 0 or plain_entries < 2  # Then nothing was counted.
    return failed


sys.exit(main())
