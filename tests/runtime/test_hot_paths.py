#!/usr/bin/env python3
"""test_hot_paths.py RUBATO-RUN HOT-PATHS SANITIZER -- what a small call costs, in counts instead of
times: instructions outside of polling (callgrind) and futex calls (strace). The bounds are what was
counted, and a tenth; a change that makes a call dearer says so.

Two ranks on shared memory. Rank 0 is slow under either tool, so what it waits for is mostly there;
what it executes only to wait (polls, sleeps) is left out. A call that is dearer is so each time."""

import os
import re
import shutil
import sys
import tempfile

RUN, PROGRAM, SANITIZER = sys.argv[1:4]
CALLS = 2000
TRIES = 6

# Function by function, since a call's share of polling depends on its luck.
WAITING = {
    "rb_engine_progress", "requests_done", "rb_losses_collect", "shm_poll", "shm_failure", "notice",
    "epoll_wait", "idle_step", "overdue_check", "rb_engine_hand_over", "rb_broken_take",
    "__tls_get_addr", "rb_engine_wait", "drive", "sleep_until", "descriptors_sleep", "ppoll",
    "__ppoll", "rb_waiting_spin_ns", "rb_waiting_slept", "rb_clock_ns", "shm_now_ns",
    "clock_gettime", "__vdso_clock_gettime", "host_busy", "rb_yield", "sched_yield", "shm_arm",
    "shm_disarm", "rb_unmatched_look", "look_for", "shm_unmatched", "rb_match_visit", "write",
    "read", "rb_shm_doorbell", "__pthread_enable_asynccancel", "__pthread_disable_asynccancel",
    "rb_engine_next_timer", "pollers_poll", "sleeping_next", "first_polls", "executors_busy",
    "rb_engine_linger", "rb_shm_here",
}

# Instructions a call, outside of waiting, in the plain build (assertions on, -O3).
INSTRUCTIONS = {
    "allreduce": 1990,
    "barrier": 1360,
    "broadcast": 1015,  # Half of them as the root, half not.
    "allgather": 1710,
    "persistent": 1850,
    "sendrecv": 1100,
}
WAKES = 400  # In 2,000 starts and waits of a persistent operation: once it was one each.


def job(*command):
    """Rank 0 under a tool, rank 1 not. Returns the exit status."""
    words = " ".join(command)
    script = f'if [ "$RUBATO_RANK" = 0 ]; then exec {words} "$@"; else exec "$@"; fi'
    return [RUN, "-n", "2", "--timeout", "120s", "--", "sh", "-c", script, "sh", PROGRAM]


def run(command):
    status = os.spawnvp(os.P_WAIT, command[0], command)
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with {status}")


def instructions(call, folder):
    """Per call; less what the same program needs with no call at all."""
    counts = {}
    for times in (10, CALLS + 10):
        out = f"{folder}/callgrind"
        tool = ("valgrind", "-q", "--tool=callgrind", f"--callgrind-out-file={out}")
        run(job(*tool) + [call, str(times)])
        with os.popen(f"callgrind_annotate --threshold=100 {out}") as lines:
            total = 0
            for line in lines:
                found = re.match(r"\s*([\d,]+) \([^)]*\)\s+\S+?:(\w+)", line)
                if found and found[2] not in WAITING:
                    total += int(found[1].replace(",", ""))
        counts[times] = total
    return (counts[CALLS + 10] - counts[10]) / CALLS


def wakes(folder):
    """Futex calls that wake another thread: those that time out are the progress thread's own."""
    out = f"{folder}/strace"
    run(job("strace", "-f", "-e", "trace=futex", "-o", out) + ["persistent", str(CALLS)])
    with open(out) as lines:
        return sum("FUTEX_WAKE" in line for line in lines)


def main():
    if SANITIZER != "none":
        print("skipped: a sanitizer's instructions are none of ours")
        return 77
    for tool in ("valgrind", "callgrind_annotate", "strace"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed")
            return 77
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        for call, bound in INSTRUCTIONS.items():
            # What is counted varies with who is early; the cheapest way is the call's own.
            got = min(instructions(call, folder) for _ in range(2))
            for _ in range(TRIES - 2):
                if got > bound:
                    got = min(got, instructions(call, folder))
            print(f"{call}: {got:.0f} instructions a call outside of waiting, at most {bound}")
            failed |= got > bound
        got = wakes(folder)
        for _ in range(TRIES - 1):  # Where others take the cores, a start is often alone for long.
            if got > WAKES:
                got = min(got, wakes(folder))
        print(f"persistent: {got} wake-ups in {CALLS} starts, at most {WAKES}")
        failed |= got > WAKES
    return failed


sys.exit(main())
