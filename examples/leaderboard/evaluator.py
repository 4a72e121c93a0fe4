"""Many submissions of many users: a fair queue, threads that compile, and threads that run."""

from __future__ import annotations

import shutil
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


def evaluate_all(
    submissions: Iterable[Submission], runner: Runner, tell: Callable[[Report], None], *,
    work: Path, compilers: int = 4, runners: int = 1,
) -> None:  # fmt: skip
    """Compile and run submissions, and ``tell`` what became of each, from one thread at a time.

    ``compilers`` are the submissions that wait for the daemon at a time, ``runners`` those that
    run: 1 for times that can be compared. Bundles are in ``work``, and removed. What goes wrong
    with one submission is in its report; a KeyboardInterrupt ends the work with what was begun.
    """
    compiling, running = Queue(), Queue()
    telling = threading.Lock()

    def report(one: Report) -> None:
        with telling:
            tell(one)

    def compile_each(folder: Path) -> None:
        while (one := compiling.take()) is not None:
            try:
                done = compile_submission(one, _bundle(folder, one))
            except Exception as error:  # one submission must not end the evaluator
                done = Report(one.user, one.name, "failed", log=f"{type(error).__name__}: {error}")
            if done.status != "compiled" or not running.put(one):
                report(done)
            compiling.done(one)

    def run_each(folder: Path) -> None:
        while (one := running.take()) is not None:
            bundle = _bundle(folder, one)
            try:
                report(runner.run(one, bundle))
            except Exception as error:
                report(Report(one.user, one.name, "failed", log=f"{type(error).__name__}: {error}"))
            bundle.unlink(missing_ok=True)
            running.done(one)

    work.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bundles-", dir=work))
    first = [threading.Thread(target=compile_each, args=[folder]) for _ in range(compilers)]
    second = [threading.Thread(target=run_each, args=[folder]) for _ in range(runners)]
    try:
        for thread in (*first, *second):
            thread.start()
        for one in submissions:
            if not compiling.put(one):
                report(Report(one.user, one.name, "refused", log="too many are waiting"))
        for queue, threads in ((compiling, first), (running, second)):
            queue.close()
            for thread in threads:
                thread.join()
    except BaseException:
        for queue in (compiling, running):
            queue.close(drop=True)
        for thread in (*first, *second):
            thread.join()
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _bundle(folder: Path, one: Submission) -> Path:
    return folder / f"{one.user}.{one.name}.{one.language}.tar"
