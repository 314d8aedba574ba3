"""The programs of Rubato as console scripts: each becomes the program of its name in this
package."""

import os
import sys

from ._library import FOLDER


def _become(name):
    program = FOLDER / "bin" / name
    if not program.exists():
        sys.exit(f"{name}: this package was built without it")
    os.execv(program, [name, *sys.argv[1:]])


def rubato_run():
    _become("rubato-run")


def rubato_bench():
    _become("rubato-bench")


def rubato_info():
    _become("rubato-info")


def rubato_sim():
    _become("rubato-sim")


def rubato_train():
    _become("rubato-train")


def rubato_report():
    _become("rubato-report")
