"""machine_faults -- what test_rounds_mutants must catch: all faults of the protocol machine."""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from partial_faults import MACHINE  # noqa: E402
from partial_faults_lines import HIDDEN  # noqa: E402

FAULTS = MACHINE + HIDDEN
