"""upstream.py -- PyTorch's own cases for backends of torch.distributed, which its package brings
along (torch.testing._internal.distributed.distributed_test), with this backend or another.

usage: upstream.py [--backend NAME] [--ranks N] [--patience S] [CASE...]
       upstream.py --source FOLDER --files FILES [--backend NAME] [--patience S] [CASE...]

Cases are those that Gloo is given: the file decides when it is imported, by the name of a backend,
what to leave out, so it is imported as for Gloo, and told the backend's name afterwards. Ranks are
forks.

With --source cases are those of files of test/distributed in a checkout of PyTorch, of the version
that is installed (--files test_c10d_object_collectives.py,tensor/test_redistribute.py): where they
ask for Gloo, which is what PyTorch takes for the CPU, they get this backend.

Prints a line for each case, and how many passed, were left out, differ as KNOWN says, and
failed; exits 1 if some failed, or do not differ any more.
"""

import argparse
import collections
import functools
import importlib
import inspect
import logging
import os
import pathlib
import re
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

GLOO = "gloo"
# Cases that hold a backend to Gloo's words -> what is said instead.
KNOWN = {
    # Its second bounds the group's start, too, which takes longer on a machine at a load of 15.
    "test_barrier_timeout_full_group": r"rank 0 waited 1 s for rank .*\(timeout\)|"
                                       r"start: .*(\(timeout\)|in the store within 1 s)",
    "test_barrier_timeout_group": r"rank 0 waited \d s for rank 1 \(timeout\)",
    "test_ddp_logging_data_cpu": r"'custom' != 'rubato'", # PyTorch's name for all of elsewhere.
    "test_monitored_barrier_failure_order": r"rank 2 did not come",
    "test_monitored_barrier_gloo": r"rank 1 did not come",
    "test_monitored_barrier_gloo_rank_0_timeout": r"rank 1 did not come within 0 s",
    "test_monitored_barrier_gloo_subgroup": r"rank 1 did not come within 0.1 s",
    "test_monitored_barrier_wait_all_ranks": r"ranks 1, 2, 3, .* did not come within 0.1 s",
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", default="rubato")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--patience", type=int, default=100, help="seconds for a case")
    parser.add_argument("--source", type=pathlib.Path, metavar="FOLDER")
    parser.add_argument("--files", default="", help="with commas between them")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="the begin of its name")
    options = parser.parse_args()
    if (options.source is None) != (not options.files):
        parser.error("--source and --files go together")
    for name in filter(None, options.files.split(",")):
        if not (options.source / "test/distributed" / name).is_file():
            parser.error(f"{options.source} has no test/distributed/{name}")
    return options


def instead_of_gloo(backend):
    """Whoever asks torch.distributed for a group of Gloo's gets one of the backend's."""
    def asked(function):
        @functools.wraps(function)
        def asks(*words, **named):
            words = [word.replace(GLOO, backend) if isinstance(word, str) and i == at else word
                     for i, word in enumerate(words)]
            if isinstance(named.get("backend"), str):
                named["backend"] = named["backend"].replace(GLOO, backend)
            return function(*words, **named)
        at = list(inspect.signature(function).parameters).index("backend")
        return asks

    for name in ("init_process_group", "new_group"):
        made = asked(getattr(dist, name))
        for module in (dist, dist.distributed_c10d):
            setattr(module, name, made)


def of_source(options):
    """All cases of the files."""
    from torch.testing._internal import common_distributed
    if options.backend != GLOO:
        instead_of_gloo(options.backend)
    common_distributed.get_timeout = lambda name: options.patience
    common_distributed.MultiProcessTestCase._spawn_processes = lambda self: self._start_processes(
        torch.multiprocessing.get_context("fork").Process)
    for name in options.files.split(","):
        path = options.source / "test/distributed" / name
        sys.path[:0] = [str(path.parent), str(options.source / "test")]
        module = importlib.import_module(path.stem)
        for suite in unittest.defaultTestLoader.loadTestsFromModule(module):
            yield from suite


def take_in(options, folder):
    """The module of cases."""
    os.environ.update(BACKEND=GLOO, WORLD_SIZE=str(options.ranks), TEMP_DIR=folder,
                      INIT_METHOD="env://")
    for name in ("barrier", "test_dir", "init_dir"):
        pathlib.Path(folder, name).mkdir()
    from torch.testing._internal import common_distributed
    from torch.testing._internal.distributed import distributed_test
    common_distributed.get_timeout = lambda name: options.patience
    if options.backend != GLOO:
        distributed_test.BACKEND = options.backend
        for feature in ("ddp", "subgroup"):
            common_distributed.DistTestCases.backend_feature[feature].add(options.backend)
        for profiled in (distributed_test.PROFILING_SUPPORTED_BACKENDS,
                         distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS):
            profiled.append(options.backend)
    return distributed_test


def cases(module):
    class Upstream(module.TestDistBackend, module.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

        def _test_accumulate_gradients_no_sync(self, **options):
            """Where the backend's name only says that tensors are the CPU's: groups are made."""
            module.BACKEND = GLOO
            super()._test_accumulate_gradients_no_sync(**options)

    return Upstream


class Lines(unittest.TestResult):
    """One for each case, as it ends."""

    def __init__(self, known):
        super().__init__()
        self.known, self.counts = known, collections.Counter()

    def say(self, test, how, why=""):
        self.counts[how] += 1
        why = str(why).strip().splitlines()
        print(f"{how:9} {test.id().split('.')[-1]}{': ' if why else ''}{why[-1] if why else ''}",
              flush=True)

    def known_of(self, test):
        return self.known.get(test.id().split(".")[-1])

    def addSuccess(self, test):
        if self.known_of(test):
            self.say(test, "failed", "it is in KNOWN, and passes")
        else:
            self.say(test, "passed")

    def addSkip(self, test, reason):
        self.say(test, "left out", reason)

    def fails(self, test, error):
        known = self.known_of(test)
        if known and re.search(known, str(error[1])):
            self.say(test, "differs", known)
            return
        self.say(test, "failed", error[1])
        print(f"{error[1]}\n", file=sys.stderr, flush=True)

    addFailure = addError = fails


def main():
    options = arguments()
    logging.disable(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        if options.source:
            tests = of_source(options)
        else:
            kind = cases(take_in(options, folder))
            tests = map(kind, unittest.defaultTestLoader.getTestCaseNames(kind))
        tests = [test for test in tests if not options.cases or
                 test.id().split(".")[-1].startswith(tuple(options.cases))]
        result = Lines(KNOWN if options.backend == "rubato" else {})
        unittest.TestSuite(tests).run(result)
    what = options.files or f"{options.ranks} ranks"
    print(f"{options.backend}, {what}, PyTorch {torch.__version__}: " + ", ".join(
        f"{result.counts[how]} {how}" for how in ("passed", "left out", "differs", "failed")))
    return 1 if result.counts["failed"] or not tests else 0


if __name__ == "__main__":
    assert dist.is_available()
    sys.exit(main())
