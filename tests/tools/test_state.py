#!/usr/bin/env python3
"""test_state.py LIBRARY -- the shared library has no mutable state but what log.c, sync_fork.c,
shm_door.c, ucx_load.c, verbs_watch.c, store_pmix.c and cuda_context.c hold for the process and its
threads.
tools/tidy reads sources; macros hide nothing here."""

import re
import subprocess
import sys

KNOWN = {
    "current_level", "last_text", "broken_text", "taken", "dropped_count",  # base/log.c
    "rb_forks", "rb_process_lock", "once", "refused",  # base/sync_fork.c
    "table",  # transport/shm/shm_door.c
    "loading", "told", "unused_option",  # transport/ucx/ucx_load.c
    "watcher",  # transport/verbs/verbs_watch.c
    "begun",  # runtime/startup/store_pmix.c
    "contexts",  # runtime/devices/cuda_context.c
}
COMPILERS = {"completed", "__dso_handle", "__TMC_END__", "__cpu_model", "__cpu_features2"}


def main():
    table = subprocess.run(["objdump", "-t", sys.argv[1]], capture_output=True, text=True,
                           check=True).stdout
    found = set(re.findall(r"\s\.(?:data|bss|tdata|tbss)\s+[0-9a-f]+\s+(?:\.hidden )?"
                           r"(\w[\w$]*)(?:\.\d+)?$", table, re.M))
    assert "current_level" in found, f"nothing is seen of base/log.c's state: {sorted(found)}"
    strangers = found - KNOWN - COMPILERS
    assert not strangers, f"state outside the objects that callers hold: {sorted(strangers)}"


if __name__ == "__main__":
    main()
