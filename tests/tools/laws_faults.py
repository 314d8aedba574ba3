"""laws_faults -- what laws_mutants must catch: faults of the runtime and those of the machine that
whole jobs show."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from partial_faults import MACHINE, RUNTIME  # noqa: E402
from partial_faults_hostile import HOSTILE  # noqa: E402
from partial_faults_lines import LINES  # noqa: E402

FAULTS = RUNTIME + [(f"machine: {name}", seed, edits) for name, seed, edits in MACHINE
                    if seed is not None] + LINES + HOSTILE
