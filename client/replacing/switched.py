"""What ``warmcc.install()`` and ``warmcc.inductor.enable()`` return."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType


class Switched:
    """Something is switched on; as a context manager this switches it off at the end of the block,
    unless it was on before it."""

    def __init__(self, off: Callable[[], None], *, is_first: bool) -> None:
        self._off = off
        self._is_first = is_first

    def __enter__(self) -> Switched:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._is_first:
            self._off()
