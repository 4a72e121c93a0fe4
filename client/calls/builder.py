"""``warmcc.Builder``: many builds at a time, as ``concurrent.futures`` has it."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any

from warmcc.client.calls import artifact
from warmcc.client.calls.artifact import Artifact


class Builder:
    """Builds extensions, and does not load them; use it as a context manager.

    At most ``max_pending`` builds wait for the daemon at a time: one more call of ``submit`` waits
    until one of them has ended, so that a loop over thousands of sources needs little memory. How
    many compilers run is the daemon's setting ``jobs``.

    ::

        with warmcc.Builder() as builder:
            futures = [builder.submit_inline(name, text, functions=["f"]) for name, text in texts]
            paths = [future.result().path for future in futures]
    """

    def __init__(self, *, max_pending: int = 32) -> None:
        if max_pending < 1:
            raise ValueError("max_pending must be at least 1")
        self._room = threading.Semaphore(max_pending)
        self._threads = ThreadPoolExecutor(max_pending, thread_name_prefix="warmcc-build")

    def submit_inline(self, name: str, *sources: Any, **more: Any) -> Future[Artifact]:
        """Begin a build; takes what ``warmcc.build_inline`` takes. What that raises, the future's
        ``result`` raises."""
        return self._submit(artifact.build_inline, name, *sources, **more)

    def submit(self, name: str, *sources: Any, **more: Any) -> Future[Artifact]:
        """The same for files; takes what ``warmcc.build`` takes."""
        return self._submit(artifact.build, name, *sources, **more)

    def _submit(self, function: Any, *given: Any, **more: Any) -> Future[Artifact]:
        self._room.acquire()
        try:
            future: Future[Artifact] = self._threads.submit(function, *given, **more)
        except BaseException:
            self._room.release()
            raise
        future.add_done_callback(lambda _: self._room.release())
        return future

    def shutdown(self, *, wait: bool = True, cancel_futures: bool = False) -> None:
        """Take no more builds; ``wait`` for those that were begun, or cancel those that wait."""
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    def __enter__(self) -> Builder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        self.shutdown(cancel_futures=kind is not None)
