#!/usr/bin/env python3
"""test_hot_paths.py RUBATO-RUN HOT-PATHS SANITIZER -- what a small call costs, in counts instead of
times: instructions outside of polling (callgrind) and futex calls (strace). The bounds are what was
counted, and a twentieth to a tenth; a change that makes a call dearer says so. Then, of more ranks
than cores, how often they sleep: they are to find their messages by yielding to each other.

Two ranks on shared memory. Rank 0, which is counted, begins each call after rank 1: it finds there
what it waits for, also where both have one core; what it executes only to wait (polls, sleeps,
locks that are held, looks for a core) is left out. What its memory costs is not measured: under a
tool other algorithms would be the better ones, now and then. A call that is dearer is so each time;
of one that is, it says where."""

import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../tools"))

import callgrind  # noqa: E402

RUN, PROGRAM, SANITIZER = sys.argv[1:4]
CALLS = 2000
FEW = 10  # The program's.
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
    "rb_engine_linger", "glance", "rb_shm_here", "timer_poll", "runs_poll", "runs_post",
    "receives_post", "follow", "__errno_location",
    # A lock that is held, and a core that others want; who holds it also drops it, which counts.
    "rb_lock_take", "rb_futex_wait", "rb_futex_wake", "syscall", "background_main", "rb_cpus_count",
    "processor_choose", "processor_change", "shm_processor", "sched_getcpu", "rb_cpu_here",
    "rb_sharing_due", "rb_sharing_add",
}
COUNT_BITS = "__popcountdi2"  # Called where it waits (rb_cpus_count), and where it does not.

# Instructions a call, outside of waiting, in the plain build (assertions on, -O3).
INSTRUCTIONS = {
    "allreduce": 710,
    "barrier": 530,
    "broadcast": 500,  # Half of them as the root, half not.
    "allgather": 730,
    "alltoallv": 905,  # Blocks of 8 bytes in memory that both map.
    "persistent": 695,
    "sendrecv": 775,
    "send and recv": 870,
    "exchange": 980,
    "partial": 7350,
}
TWINS = {"persistent": "allreduce"}
# Sleeps a call, of the rank that sleeps most; more ranks than cores.
SLEEPS = {("allreduce", 4): 0.1, ("allreduce", 8): 0.1, ("barrier", 8): 0.1, ("exchange", 4): 0.1}
# Who waits on a core that others want looks now and then where they are, and not each time that it
# yields: instructions of processor_choose(), of those of rb_sharing_add(), which looks have alone.
LOOKS = 100
# In 2,000 starts and waits of a persistent operation, once it was one each; in as many rounds.
WAKES = {"persistent": 400, "partial": 400}


def job(*command):
    """Rank 0 under a tool, rank 1 not."""
    words = " ".join(command)
    script = ("export RUBATO_MEASURE=0; "
              f'if [ "$RUBATO_RANK" = 0 ]; then exec {words} "$@"; else exec "$@"; fi')
    return [RUN, "-n", "2", "--timeout", "120s", "--", "sh", "-c", script, "sh", PROGRAM]


def run(command):
    status = os.spawnvp(os.P_WAIT, command[0], command)
    if status != 0:
        sys.exit(f"{' '.join(command)} ended with {status}")


def instructions(call, folder):
    """Per call, from the program's first few on to its last one: of all, and by function."""
    path, fifo = f"{folder}/callgrind", f"{folder}/fifo"
    os.mkfifo(fifo)
    run(job(*callgrind.TOOL, callgrind.out(path)) + [call, str(FEW + CALLS), fifo])
    os.unlink(fifo)
    counts, callers = callgrind.executed(path, COUNT_BITS)
    if COUNT_BITS in counts:
        counts[COUNT_BITS] -= sum(n for name, n in callers.items() if name in WAITING)
    counts = {name: count / CALLS for name, count in counts.items() if name not in WAITING}
    return sum(counts.values()), counts


def show(tries):
    """Of each try, where it went: what is the same in all is dearer, or what it always met."""
    for total, counts in tries:
        most = sorted(counts.items(), key=lambda item: -item[1])
        yield f"  {total:.0f}: " + ", ".join(f"{name} {n:.1f}" for name, n in most if n >= 0.5)


def looks(folder):
    """Of a rank that shares its core."""
    path, before = f"{folder}/crowded", os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    run(job(*callgrind.TOOL, callgrind.out(path)) + ["partial", str(FEW + CALLS)])
    os.sched_setaffinity(0, before)
    counts = callgrind.executed(path)
    return counts["processor_choose"] / counts["rb_sharing_add"]


def wakes(call, folder):
    """Futex calls that wake another thread: those that time out are the progress thread's own."""
    out = f"{folder}/strace"
    run(job("strace", "-f", "-e", "trace=futex", "-o", out) + [call, str(CALLS)])
    with open(out) as lines:
        return sum("FUTEX_WAKE" in line for line in lines)


def sleeps(call, ranks, **env):
    """Per call, of the rank that sleeps most."""
    words = [RUN, "-n", str(ranks), "--timeout", "120s", "--", PROGRAM, call, str(CALLS)]
    got = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True,
                         env={**os.environ, **env})
    found = re.findall(r"slept (\d+) not (\d+)", got.stdout)
    if len(found) != ranks:
        sys.exit(f"{call} on {ranks} ranks said {got.stdout!r}")
    return max(int(slept) for slept, _ in found) / CALLS


def least(count, bound):
    """What a run is for; where others take the cores it takes some to show."""
    got = count()
    for _ in range(TRIES - 1):
        got = min(got, count()) if got > bound else got
    return got


def main():
    if SANITIZER != "none":
        print("skipped: a sanitizer's instructions are none of ours")
        return 77
    for tool in ("valgrind", "strace"):
        if shutil.which(tool) is None:
            print(f"skipped: {tool} is not installed")
            return 77
    wrong = [] # Said again at the end, where it is found.

    def judge(good, said, more=()):
        print(said)
        if not good:
            wrong.extend([said, *more])

    with tempfile.TemporaryDirectory() as folder:
        counts = {}
        for call, bound in INSTRUCTIONS.items():
            # Persistent ones are to cost no more than those that are not.
            bound = min(bound, counts.get(TWINS.get(call), bound))
            # What is counted varies with who is early; the cheapest way is the call's own.
            tries = [instructions(call, folder) for _ in range(2)]
            while min(total for total, _ in tries) > bound and len(tries) < TRIES:
                tries.append(instructions(call, folder))
            got = counts[call] = min(total for total, _ in tries)
            judge(got <= bound,
                  f"{call}: {got:.0f} instructions a call outside of waiting, at most {bound:.0f}",
                  show(tries))
        for (call, ranks), bound in SLEEPS.items():
            got = least(lambda: sleeps(call, ranks), bound)
            judge(got <= bound,
                  f"{call}: {got:.3f} sleeps a call on {ranks} ranks, at most {bound}")
        got = sleeps("allreduce", 4, RUBATO_SPIN="1ns") # So it is where they do not yield.
        judge(got >= 0.3,
              f"allreduce: {got:.3f} sleeps a call on 4 ranks that do not wait, at least 0.3")
        got = least(lambda: looks(folder), LOOKS)
        judge(got <= LOOKS, f"partial: {got:.0f} instructions of looks for cores for one that must "
              f"be, at most {LOOKS}")
        for call, bound in WAKES.items():
            got = least(lambda: wakes(call, folder), bound)
            judge(got <= bound, f"{call}: {got} wake-ups in {CALLS} calls, at most {bound}")
    if wrong:
        print("too many or too few:", *wrong, sep="\n")
    return len(wrong) > 0


sys.exit(main())
