"""Many submissions of many users at a time, in a fair order."""

from __future__ import annotations

import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from .compile import compile_submission
from .run import Runner
from .submission import Report, Submission


class Queue:
    """Users take turns: the next submission is one of the user who has the fewest in work, and of
    these users of the one who was served least recently. So a user with a thousand submissions that
    take all the time there is delays another one by few of them."""

    def __init__(self, each: int = 1000) -> None:
        self._each = each
        self._waiting: dict[str, deque[Submission]] = {}
        self._in_work: dict[str, int] = {}
        self._served: dict[str, int] = {}
        self._turn = 0
        self._closed = False
        self._changed = threading.Condition()

    def put(self, one: Submission) -> bool:
        """False if the user has too many waiting already."""
        with self._changed:
            waiting = self._waiting.setdefault(one.user, deque())
            if len(waiting) >= self._each:
                return False
            waiting.append(one)
            self._changed.notify()
            return True

    def close(self, *, drop: bool = False) -> None:
        """No more will come; ``drop`` those that wait."""
        with self._changed:
            self._closed = True
            if drop:
                self._waiting.clear()
            self._changed.notify_all()

    def take(self) -> Submission | None:
        """The next one; waits for it. None when there will be no more. Call ``done`` with it."""
        with self._changed:
            while not (users := [user for user, found in self._waiting.items() if found]):
                if self._closed:
                    return None
                self._changed.wait()
            user = min(users, key=lambda one: (self._in_work.get(one, 0), self._served.get(one, 0)))
            self._turn += 1
            self._served[user] = self._turn
            self._in_work[user] = self._in_work.get(user, 0) + 1
            return self._waiting[user].popleft()

    def done(self, one: Submission) -> None:
        with self._changed:
            self._in_work[one.user] -= 1


def in_turn(
    submissions: Iterable[Submission | Report],
    evaluate: Callable[[Submission], Report],
    tell: Callable[[Report], None],
    *,
    threads: int = 6,
) -> None:
    """Evaluate submissions in some threads, in the order of ``Queue``, and ``tell`` what became of
    each, from one thread at a time. What is a report already is only told.
    A KeyboardInterrupt ends the work with what was begun."""
    queue, telling = Queue(), threading.Lock()

    def report(one: Report) -> None:
        with telling:
            tell(one)

    def work() -> None:
        while (one := queue.take()) is not None:
            try:
                done = evaluate(one)
            except Exception as error:  # one submission must not end the evaluator
                done = Report(one.user, one.name, "failed", log=f"{type(error).__name__}: {error}")
            report(done)
            queue.done(one)

    workers = [threading.Thread(target=work) for _ in range(threads)]
    try:
        for worker in workers:
            worker.start()
        for one in submissions:
            if isinstance(one, Report):
                report(one)
            elif not queue.put(one):
                report(Report(one.user, one.name, "refused", log="too many are waiting"))
        queue.close()
        for worker in workers:
            worker.join()
    except BaseException:
        queue.close(drop=True)
        for worker in workers:
            worker.join()
        raise


def evaluate_all(
    submissions: Iterable[Submission | Report], runner: Runner, tell: Callable[[Report], None], *,
    work: Path, threads: int = 6, runners: int = 1,
) -> None:  # fmt: skip
    """Compile and run submissions on one machine.
    ``threads`` are the submissions in work at a time, ``runners`` those of them that run: 1 for
    times that can be compared. Bundles are in ``work``, and removed."""
    work.mkdir(parents=True, exist_ok=True)
    running = threading.Semaphore(runners)
    with tempfile.TemporaryDirectory(prefix="bundles-", dir=work) as folder:

        def evaluate(one: Submission) -> Report:
            bundle = Path(folder, bundle_name(one))
            report = compile_submission(one, bundle)
            if report.status == "compiled":
                with running:
                    report = runner.run(one, bundle)
                bundle.unlink(missing_ok=True)
            return report

        in_turn(submissions, evaluate, tell, threads=threads)


def bundle_name(one: Submission) -> str:
    return f"{one.user}.{one.name}.{one.language}.tar"
