"""Keep the work units of a plan going on an executor, and take in what they made.

Work units may be lost: their process or machine ends, or a result arrives damaged. They begin
again, a few times; what the others made is not touched by that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass
from typing import Any

from warmcc.client.prebuild import work
from warmcc.client.prebuild.plan import Job
from warmcc.client.prebuild.results import Results
from warmcc.errors import PrebuildError, WarmccError

Record = dict[str, Any]


@dataclass(frozen=True)
class Ground:
    """Where work units run: at most ``window`` are handed to the executor at a time, each up to
    ``attempts`` times. ``place`` is the store that they write, ``draft`` the package's.
    ``first_alone``: the others wait for the first one, which makes what all of them share."""

    executor: Executor
    place: str
    draft: Results
    window: int
    attempts: int
    first_alone: bool = False


def records(jobs: list[Job], ground: Ground) -> Generator[tuple[Job, Record], None, None]:
    """Each job with its record, as they come; the objects are in the draft then. Those that have
    not begun when the iterator is closed do not begin.

    Raises PrebuildError for work units that are lost too often; on the first attempt of all that
    have only one, what they raise.
    """
    waiting = deque((job, 1) for job in jobs)
    running: dict[Future[Record], tuple[Job, int]] = {}
    window = 1 if ground.first_alone else ground.window
    try:
        while waiting or running:
            while waiting and len(running) < window:
                job, attempt = waiting.popleft()
                running[_submitted(job, ground)] = (job, attempt)
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                job, attempt = running.pop(future)
                try:
                    record = _arrived(future.result(), ground)
                except (Exception, CancelledError) as error:
                    if attempt >= ground.attempts:
                        raise _lost(job, error, ground) from error
                    waiting.append((job, attempt + 1))
                    continue
                window = ground.window
                yield job, record
    finally:
        for future in running:
            future.cancel()


def _submitted(job: Job, ground: Ground) -> Future[Record]:
    try:
        return ground.executor.submit(work.build, job.id, job.module, job.arguments, ground.place)
    except Exception as error:  # it has ended, or lost its processes
        raise PrebuildError(
            f"the executor takes no more work: {type(error).__name__}: {error}\n"
            "What was built is kept: run it again to go on"
        ) from error


def _arrived(record: Record, ground: Ground) -> Record:
    """The record, once its object is in the draft. Raises OSError for one that is not what its
    digest says."""
    if "error" in record or ground.place == ground.draft.place:
        return record
    name = str(record["digest"])
    if ground.draft.get(name) is None:
        data = Results(ground.place).get(name)
        if data is None:
            raise OSError(f"{ground.place} has no object {name}, or a damaged one")
        ground.draft.put(data)
    return record


def _lost(job: Job, error: BaseException, ground: Ground) -> Exception:
    if ground.attempts == 1 and isinstance(error, (WarmccError, OSError)):
        return error
    return PrebuildError(
        f"variant {job.key!r} was lost {ground.attempts} times; the last time: "
        f"{type(error).__name__}: {error}\nWhat was built is kept: run it again to go on"
    )
