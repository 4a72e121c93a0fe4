"""``warmcc.prebuild``: many variants of an extension into one package."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from warmcc.client.prebuild import package, plan, run, wheel, work
from warmcc.client.prebuild.draft import Draft
from warmcc.client.prebuild.plan import Job, Plan
from warmcc.client.prebuild.space import Value
from warmcc.client.prebuild.template import Function, Template, macros
from warmcc.errors import PrebuildError

_WINDOW = 512  # work units that an executor of the caller's has at a time
_ATTEMPTS = 3  # for each of them
_SHOWN = 3  # failures that an error tells of


class Progress(NamedTuple):
    """How far a run is, after each variant: ``key`` is its name, and ``how`` it ended: ``miss``
    (compiled), ``hit``, ``joined``, ``kept`` (of a run before) or ``failed``."""

    key: str
    how: str
    done: int
    total: int
    failed: int
    compiled: int
    seconds: float

    @property
    def left(self) -> float | None:
        """Seconds until the end, at the rate of the variants that were built."""
        built = self.compiled + self.failed
        return (self.total - self.done) * self.seconds / built if built else None


@dataclass(frozen=True)
class Prebuilt:
    """A package that was written. ``path`` is its folder, ``wheel`` the wheel's file or None;
    ``compiled`` counts the variants that were compiled now, ``how`` has the counts of all ends, and
    ``failed`` the errors by the variants' names."""

    name: str
    path: str
    wheel: str | None
    variants: list[str]
    compiled: int
    how: dict[str, int]
    failed: dict[str, str]
    seconds: float


@dataclass
class _Run:
    """What is known of a run."""

    plan: Plan
    on_progress: Callable[[Progress], None] | None
    began: float = field(default_factory=time.monotonic)
    records: dict[int, dict[str, Any]] = field(default_factory=dict)
    failed: dict[int, str] = field(default_factory=dict)
    how: dict[str, int] = field(default_factory=dict)

    def add(self, job: Job, record: dict[str, Any]) -> None:
        how = "failed" if "error" in record else str(record["how"])
        self.how[how] = self.how.get(how, 0) + 1
        if how == "failed":
            self.failed[job.number] = record["error"]
        else:
            self.records[job.number] = record
        if self.on_progress is not None:
            done, seconds = len(self.records) + len(self.failed), time.monotonic() - self.began
            counts = done, len(self.plan.jobs), len(self.failed), self.compiled
            self.on_progress(Progress(job.key, how, *counts, seconds))

    @property
    def compiled(self) -> int:
        return self.how.get("miss", 0)

    def error(self) -> PrebuildError:
        """Of variants that do not build, the first ones."""
        keys = {job.number: job.key for job in self.plan.jobs}
        failed = {keys[number]: text for number, text in sorted(self.failed.items())}
        shown = [f"variant {key!r}: {text}" for key, text in list(failed.items())[:_SHOWN]]
        more = len(failed) - len(shown)
        shown += [f"… and {more} more"] if more > 0 else []
        return PrebuildError(
            f"{len(failed)} of {len(self.plan.jobs)} variants failed to build, "
            f"{len(self.records)} are built and kept\n" + "\n".join(shown), failed,
        )  # fmt: skip


def prebuild(
    name: str, variants: Iterable[Mapping[str, Value]], *, output: str | os.PathLike[str] = ".",
    template: Function | None = None, defines: Iterable[str] | Mapping[str, str] = (),
    entry: str | None = None, version: str = "0.0.0", wheel: bool = False,
    keep_going: bool = False, jobs: int | None = None, executor: Executor | None = None,
    store: str | os.PathLike[str] | None = None,
    on_progress: Callable[[Progress], None] | None = None, **arguments: Any,
) -> Prebuilt:  # fmt: skip
    """Build variants of an extension, and write the package ``name`` in the folder ``output``.

    ``variants`` are maps of parameters to values: a ``warmcc.Space``, a sample of it, or a list.
    ``arguments`` are those of ``warmcc.build_inline``; ``{{name}}`` in their texts stands for a
    parameter's value, ``defines`` are parameters that become macros (a list, or a map of macros to
    parameters), and ``template`` is a function of a variant's map that gives more arguments.
    ``entry`` names the function that a variant calls (default: the first of ``functions``).
    ``wheel`` also writes a wheel of this ``version``.

    ``keep_going``: a variant that does not build is left out, and the others are built. ``jobs``
    builds wait for the daemon at a time. An ``executor`` runs the builds in its processes or
    machines, whose results come through ``store``: a folder that all of them see under this path
    (default: the package's draft), or a URL for fsspec.

    What was built is kept in ``output/.NAME.draft`` until the package is whole, so that the same
    call goes on after a kill.

    Raises RequestError for what cannot be planned, PrebuildError (with ``failures``) for variants
    that do not build, DaemonError where there is no daemon, and OSError for the folder.
    """
    made = plan.plan(
        name, variants, Template(arguments, macros(defines), template), entry=entry, version=version
    )
    place = None if store is None else os.fspath(store)
    return build(
        made, Path(output), wheel=wheel, keep_going=keep_going, jobs=jobs, executor=executor,
        store=place, on_progress=on_progress,
    )  # fmt: skip


def build(
    planned: Plan, output: Path, *, wheel: bool = False, keep_going: bool = False,
    jobs: int | None = None, executor: Executor | None = None, store: str | None = None,
    on_progress: Callable[[Progress], None] | None = None,
) -> Prebuilt:  # fmt: skip
    """Build a plan. See ``prebuild``."""
    if jobs is not None and jobs < 1:
        raise ValueError("jobs must be at least 1")
    output = output.absolute()
    draft, target = Draft(output, planned.name), output / planned.name
    package.check_target(target)
    going = _Run(planned, on_progress)
    at_a_time = jobs or min(32, 2 * len(os.sched_getaffinity(0)))
    with draft.held():
        place = draft.results.place if store is None else store
        if executor is not None:
            ground = run.Ground(executor, place, draft.results, jobs or _WINDOW, _ATTEMPTS)
            _take_in(going, ground, keep_going=keep_going)
        else:
            # One more than work units, for what the first one will need
            with ThreadPoolExecutor(at_a_time + 1, "warmcc-prebuild") as threads:
                if draft.results.noted(planned.jobs[0].id) is None:
                    threads.submit(work.prepare)
                ground = run.Ground(threads, place, draft.results, at_a_time, 1, first_alone=True)
                _take_in(going, ground, keep_going=keep_going)
        if not going.records:
            raise going.error()
        return _written(going, draft, target, with_wheel=wheel)


def _take_in(going: _Run, ground: run.Ground, *, keep_going: bool) -> None:
    """Raises PrebuildError for the first variant that does not build."""
    records = run.records(going.plan.jobs, ground)
    try:
        for job, record in records:
            going.add(job, record)
            if going.failed and not keep_going:
                raise going.error()
    finally:
        records.close()


def _written(going: _Run, draft: Draft, target: Path, *, with_wheel: bool) -> Prebuilt:
    metadata = package.write(going.plan, going.records, going.failed, draft, target)
    path = wheel.write(target, metadata, target.parent) if with_wheel else None
    draft.remove()
    keys = {job.number: job.key for job in going.plan.jobs}
    return Prebuilt(
        going.plan.name, str(target), None if path is None else str(path),
        [keys[number] for number in sorted(going.records)], going.compiled, going.how,
        {keys[number]: text for number, text in sorted(going.failed.items())},
        time.monotonic() - going.began,
    )  # fmt: skip
