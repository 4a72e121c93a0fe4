"""How long a plan would take, from builds that were measured."""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass

from warmcc import paths, record
from warmcc.client.prebuild.draft import Draft
from warmcc.client.prebuild.plan import Plan
from warmcc.record import Answered

_RECENT = 50  # builds of the log, the latest
_WAITS = ("wait", "fork servers")  # steps in which no processor works


@dataclass(frozen=True)
class Estimate:
    """``done`` variants of all are in the draft. ``seconds`` is the processor time of one variant,
    the median of ``measured`` builds ``of`` the same or of other extensions; none where nothing was
    measured."""

    variants: int
    done: int
    seconds: float | None
    measured: int
    of: str
    processors: int

    @property
    def left(self) -> float | None:
        """Seconds until the package would be there."""
        if self.seconds is None:
            return None
        return (self.variants - self.done) * self.seconds / self.processors


def estimate(plan: Plan, draft: Draft) -> Estimate:
    """Reads the draft, and the log of this machine's daemon."""
    done = sum(draft.results.noted(job.id) is not None for job in plan.jobs)
    is_cuda = any(job.arguments.get("cuda_sources") for job in plan.jobs)
    same: list[float] = []
    alike: list[float] = []
    for line in record.read(paths.state_dir() / paths.STRUCTURED_LOG):
        found = line.answered
        if found is None or found.outcome != "miss":
            continue
        if found.name.startswith(f"{plan.name}_"):
            same.append(_processor_seconds(found))
        elif ("cuda_sources" in found.inputs) == is_cuda:
            alike.append(_processor_seconds(found))
    times = (same or alike)[-_RECENT:]
    return Estimate(
        len(plan.jobs), done, statistics.median(times) if times else None, len(times),
        "this package" if same else "other extensions", len(os.sched_getaffinity(0)),
    )  # fmt: skip


def _processor_seconds(found: Answered) -> float:
    """The steps' seconds; they may have run side by side."""
    return sum(span.end - span.start for span in found.spans if span.step not in _WAITS)
