#!/usr/bin/env python3
"""test_verbs_paths.py PROGRAM SANITIZER -- instructions of the verbs transport for a message of 8
bytes and for 1 MiB, both ends together, outside of libibverbs (callgrind); and how often it enters
libibverbs, beside a plain loop that makes the same transfers. Part of them is the queue: what it
takes to post and complete, below messages with their tags, matching and requests. Messages are
counted beside one that lies aside at each end, too, as a probe does. The bounds are what was
counted, and a tenth; of a small message and a put less, as 1.3 times the plain loop is what they
may take.

Two endpoints in one thread, on mock devices that only calls move: it is the same each time, but for
what passes by the clock (once in a while the descriptors and other machines are looked at). The
slower the machine, the more often; so a count above its bound is taken again."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM, SANITIZER = sys.argv[1:3]
TRIES = 3  # Of them one has to be within.
FEW = 10  # Messages there and back; and
TIMES = {"small": 410, "put": 130, "large": 130, "bare": 130}
# One rail. And long copies, which are the mock's, by vectors: valgrind takes "rep movsb" for a step
# a byte.
ENVIRONMENT = {**os.environ, "VERBS_MOCK_CONFIG": "devices=1",
               "GLIBC_TUNABLES": f"glibc.cpu.x86_rep_movsb_threshold={1 << 30}"}
# libibverbs' own, by the functions of the mock that are entered: what they do is not counted.
CALLS = ("post_send", "post_recv", "poll_cq", "req_notify_cq", "ibv_reg_mr", "ibv_reg_mr_iova2",
         "ibv_dereg_mr")

# The program's loops: not counted.
OWN = ("message", "transfer", "main", "ours", "ours_beside", "queue", "plain", "plain_letter")

# Nor is what only starting does, which goes round more or less often.
START = re.compile("printf|_IO_|itoa|strchr|_dl_|lookup|cancel|await_greetings|datagram|spare_|"
                   "event|rb_verbs_(move|lose|hear_out|listener_tick|check_peers)$")

# Instructions a message: all, and the queue's; and calls of libibverbs, more than the plain loop:
# polls that find nothing come and go.
BOUNDS = {
    "small": {"ours": 372, "beside": 440, "queue": 515, "entries": 0.5},
    "put": {"ours": 636, "queue": 1500, "entries": 0.5},
    "large": {"ours": 1180, "beside": 1260, "entries": 0.5},
    "bare": {"ours": 1275, "entries": 0.5},
}


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
            if found and found[2] not in OWN and not START.search(found[2]):
                total += int(found[1].replace(",", ""))
    return total, entries


def each(whose, what, folder):
    few, many = (counted(whose, what, times, folder) for times in (FEW, TIMES[what]))
    return [(b - a) / (2 * (TIMES[what] - FEW)) for a, b in zip(few, many)]


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
        for what, bounds in BOUNDS.items():
            plain, plain_entries = each("plain", what, folder)
            failed |= plain == 0 or plain_entries < 2  # Then nothing was counted.
            for whose in ("ours", "beside", "queue"):
                if whose not in bounds:
                    continue
                more = plain_entries + bounds["entries"]
                for _ in range(TRIES):
                    count, entries = each(whose, what, folder)
                    if count <= bounds[whose] and entries <= more:
                        break
                print(f"{what}, {whose}: {count:.0f} instructions outside of libibverbs, at most "
                      f"{bounds[whose]}; a plain loop {plain:.0f}; {entries:.2f} calls of it, at "
                      f"most {more:.2f}")
                failed |= count > bounds[whose] or entries > more
    return failed


sys.exit(main())
