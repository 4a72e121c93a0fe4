"""What the parts of the CUDA compiler share."""

from __future__ import annotations

from dataclasses import dataclass

from warmcc.config import Config
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm.finder import Finder
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits
from warmcc.daemon.system.runner import Runner

_MANY = 4
_OWN = 3  # steps that one build has at a time, beside a unit's


@dataclass(frozen=True)
class Tools:
    """Those of one daemon."""

    config: Config
    finder: Finder
    runner: Runner
    counters: Counters
    steps: StepCache
    permits: Permits

    @property
    def has_free_processors(self) -> bool:
        """Whether the halves of a unit, side by side, take no time from each other, or from other
        builds."""
        return self.permits.limit - max(0, self.permits.in_use - _OWN) >= _MANY
