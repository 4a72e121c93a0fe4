"""What a run has found so far, kept in a file after every sequence of calls, so that an interrupted
run can go on.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.road.measure import Sample, Sequence

_SAME = (
    "class",
    "torch",
    "compiler",
    "commit",
)  # a table of two of these would compare what cannot be compared


class Unusable(ValueError):
    """A file holds no results that can be gone on from; says why, and what to do."""


@dataclass
class Ledger:
    """``failures`` are sequences that gave no figures, by what was measured; ``left_out`` cases, by
    name.
    """

    machine: dict[str, Any]
    samples: list[Sample] = field(default_factory=list)
    failures: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def has(self, one: Sequence) -> bool:
        """Whether a sequence was measured to its end."""
        wanted = (one.case.name, one.cores, one.turn, one.side)
        found = {s.moment for s in self.samples if (s.case, s.cores, s.turn, s.side) == wanted}
        return found == set(one.case.moments)

    def plain(self) -> dict[str, Any]:
        return asdict(self)

    def save(self, path: Path) -> None:
        """Write it whole or not at all."""
        new = path.with_name(f".{path.name}.new")
        new.write_text(json.dumps(self.plain(), indent=1) + "\n", encoding="utf-8")
        os.replace(new, path)

    @staticmethod
    def read(path: Path) -> Ledger:
        """Raises Unusable."""
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            samples = [Sample(**one) for one in found["samples"]]
            return Ledger(found["machine"], samples, found["failures"], found["left_out"])
        except OSError as error:
            raise Unusable(
                f"{path} cannot be read: {error.strerror}; run without --resume to begin a new one"
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise Unusable(
                f"{path} holds no results of this benchmark; name another file with --json"
            ) from error

    def resumed(self, machine: dict[str, Any]) -> Ledger:
        """This one without its failures, for a run that goes on with it on ``machine``. Raises
        Unusable.
        """
        for name in _SAME:
            old, new = _clean(self.machine.get(name)), _clean(machine[name])
            if old != new:
                raise Unusable(
                    f"those results are of {name} {old!r}, and this is {new!r}: figures "
                    f"of both do not compare; "
                    "run without --resume to begin new results"
                )
        return Ledger(self.machine, self.samples)


def _clean(fact: Any) -> Any:
    """A fact without git's mark for changed files: the results themselves are such a file once they
    are written.
    """
    return fact.removesuffix("-dirty") if isinstance(fact, str) else fact


def put_aside(path: Path) -> Path | None:
    """Keep an earlier run's results under another name; gives it."""
    if not path.exists():
        return None
    kept = path.with_suffix(".before.json")
    os.replace(path, kept)
    return kept
