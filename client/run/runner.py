"""``warmcc.Runner``: many short Python programs, each in a process of its own."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType

from warmcc import runs
from warmcc.client.run.job import Finished, Job, Wanted

__all__ = ["Finished", "Runner"]

OUTPUT_BYTES = 1 << 20


class Runner:
    """Run Python programs in forks of a process that has torch imported.

    Each program is a job: a process in a session of its own, with captured output, and with limits
    at which it ends with all that it started. ``workers`` jobs run at a time (by default as many as
    this process may use processors). ``profile`` says what is imported: ``torch`` or ``compile``.
    Where no zygote is right for a job, python runs it. A program can leave its limits if it tries
    to: what is not trusted needs a container around it.

    ::

        with warmcc.Runner(workers=4) as runner:
            job = runner.submit("bench.py", argv=["--n", "8"], timeout=60, memory=8 << 30)
            print(job.result().code)

    In a coroutine: ``await asyncio.wrap_future(runner.submit(...))``.
    """

    def __init__(self, *, workers: int | None = None, profile: str = "torch") -> None:
        if profile not in runs.PROFILES:
            raise ValueError(f"profile must be one of {', '.join(runs.PROFILES)}: {profile!r}")
        count = len(os.sched_getaffinity(0)) if workers is None else workers
        self._threads = ThreadPoolExecutor(count, thread_name_prefix="warmcc-runner")
        self._profile = profile
        self._running: set[Job] = set()
        self._lock = threading.Lock()
        self._closed = False

    def submit(
        self,
        script: str | os.PathLike[str] | None = None,
        *,
        code: str | None = None,
        module: str | None = None,
        argv: Sequence[str] = (),
        stdin: bytes | str = b"",
        env: Mapping[str, str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        memory: int | None = None,
        output: int = OUTPUT_BYTES,
    ) -> Future[Finished]:
        """Start a job when a worker is free: a script, or code, or a module, with its arguments.

        ``timeout`` is in seconds from its start; ``memory`` in bytes that its processes hold
        together, looked at 20 times a second; ``output`` in bytes kept of each of its two streams.
        ``env`` replaces the environment. The result is a ``Finished``, also for a job that failed.
        Raises ValueError for wrong arguments, RuntimeError after ``shutdown``.
        """
        given = [one for one in (script, code, module) if one is not None]
        if len(given) != 1:
            raise ValueError("give one of script, code and module")
        name = os.fspath(given[0])
        if script is not None and name.startswith("-"):
            name = os.path.join(".", name)
        words = [*(["-c"] if code is not None else ["-m"] if module is not None else []), name]
        if any("\0" in one for one in (*words, *argv)):
            raise ValueError("an argument contains a NUL character")
        for title, value in (("timeout", timeout), ("memory", memory), ("output", output)):
            if value is not None and value < 0:
                raise ValueError(f"{title} must not be negative: {value}")
        folder = os.path.dirname(sys.executable)
        plain = os.path.join(folder, "python")
        wanted = Wanted(
            python=plain if os.access(plain, os.X_OK) else sys.executable, words=[*words, *argv],
            stdin=stdin.encode() if isinstance(stdin, str) else stdin,
            environment=dict(os.environ if env is None else env),
            folder=os.path.abspath(os.getcwd() if cwd is None else cwd), timeout=timeout,
            memory=memory, output=output, profile=self._profile,
        )  # fmt: skip
        return self._threads.submit(self._run, wanted)

    def _run(self, wanted: Wanted) -> Finished:
        job = Job(wanted)
        with self._lock:
            self._running.add(job)
            if self._closed:
                job.stop()
        try:
            return job.run()
        finally:
            with self._lock:
                self._running.discard(job)

    def shutdown(self, *, cancel: bool = False) -> None:
        """Wait until all jobs have ended; with ``cancel``, end those that run, and start no
        more."""
        if cancel:
            with self._lock:
                self._closed = True
                for job in self._running:
                    job.stop()
        self._threads.shutdown(cancel_futures=cancel)

    def __enter__(self) -> Runner:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self.shutdown(cancel=kind is not None)
