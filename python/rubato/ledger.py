"""The ledger: where every contribution went, in lines of JSON, as rubato-train, rubato-bench and
rubato-sim write it and rubato-report reads it (docs/trainer.md, "The ledger")."""

import json
import os
import pathlib
from typing import Iterable, Optional, Union

import numpy as np

from .partial import Round


class Ledger:
    """Writes a ledger, beside `path`, which appears when all is written: at close(), or at the
    end of a `with` block that no exception ended. One rank writes it: rounds are the same on all.
    """

    def __init__(self, path: Union[str, os.PathLike]):
        self._path = pathlib.Path(path)
        opened = self._path.parts[:2] in (("/", "dev"), ("/", "proc"))  # As /dev/stdout is.
        if self._path.is_symlink() and self._path.is_file() and not opened:
            self._path = self._path.resolve()  # The link stays.
        self._part = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        if self._path.is_symlink() or self._path.exists() and not self._path.is_file():
            self._part = self._path  # A device, a pipe, a link to one or to nothing.
        self._file = open(self._part, "w", encoding="utf-8")
        self._updates = 0

    def _write(self, line):
        self._file.write(json.dumps(line, separators=(",", ":")) + "\n")

    def update(self, round: Round, rate: Optional[float] = None) -> None:
        """A round whose result was applied, at learning rate `rate`."""
        ranks = round.ranks
        line = {"update": self._updates, "round": round.round,
                "weight_denominator": round.divisor, "discarded": round.discarded,
                "contributions": [[rank, int(ranks[rank]["first_step"]),
                                   int(ranks[rank]["last_step"])]
                                  for rank in np.flatnonzero(ranks["count"]).tolist()],
                "fresh": np.flatnonzero(ranks["fresh"]).tolist()}
        if not ranks["member"].all():
            line["group"] = np.flatnonzero(ranks["member"]).tolist()
        if rate is not None:
            line["rate"] = rate
        self._write(line)
        self._updates += 1

    def average(self, ranks: Iterable[int], step: int, period: int, scope: str = "global") -> None:
        """An average of the models of `ranks` after `step` local steps, `period` after the last
        one."""
        self._write({"update": self._updates, "kind": "average", "scope": scope,
                     "ranks": [int(rank) for rank in ranks], "step": step, "period": period})
        self._updates += 1

    def close(self, keep: bool = True) -> None:
        """`keep` false: nothing stays."""
        if self._file.closed:
            return
        try:
            if keep and self._part != self._path:
                self._file.flush()
                os.fsync(self._file.fileno())
            self._file.close()
            if keep and self._part != self._path:
                os.replace(self._part, self._path)
        finally:
            self._file.close()
            if self._part != self._path:
                self._part.unlink(missing_ok=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.close(keep=kind is None)
