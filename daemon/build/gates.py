"""Have each command that ninja starts wait for a permit.

ninja decides what comes next, and the daemon when: the shell of a command writes its number into
the pipe ``ask``, and opens a pipe of its own, which the daemon opens when there is a permit. The
command holds that pipe open as long as it runs, so that the daemon sees it end, also when it was
killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shlex
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

from warmcc.daemon.system.permits import Permits, Share

T = TypeVar("T")

_ASK = "ask"
_AGAIN_SECONDS = 0.001  # until the shell that has asked opens its pipe: its next system call
_GONE_SECONDS = 5.0  # a shell that has not done so by then was killed


class Gates:
    """The pipes of one run with so many commands, in a folder below ``tree``.
    They give permits of one flight's share, to the commands with numbers in ``first`` before what
    else waits for one; ``on_begun`` is called when all of these have one."""

    def __init__(
        self, tree: Path, count: int, permits: Permits, share: Share,
        first: Collection[int] = (), on_begun: Callable[[], None] = lambda: None,
    ) -> None:  # fmt: skip
        self.share = share
        # When each command went on and ended (monotonic)
        self.ran: dict[int, tuple[float, float]] = {}
        self._permits = permits
        self._folder = tree / "gates"
        self._count = count
        self._first = set(first)
        self._on_begun = on_begun
        self._word = shlex.quote(f"{self._folder}/")
        word = re.escape(self._word)
        self._text = re.compile(rf"echo \d+ >{word}{_ASK} && exec 9<{word}\d+ && ")

    def command(self, number: int) -> str:
        """What stands in front of a command, as the shell reads it."""
        return f"echo {number} >{self._word}{_ASK} && exec 9<{self._word}{number} && "

    def without(self, text: str) -> str:
        """What ninja printed, without what stands in front of commands."""
        return self._text.sub("", text)

    async def serve(self, run: Coroutine[Any, Any, T]) -> T:
        """Give permits to the commands of a run until it has ended.
        Raises OSError when a pipe cannot be had: then no command can go on, and the run is
        cancelled."""
        running = asyncio.ensure_future(run)
        passing: set[asyncio.Task[None]] = set()
        failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        both: list[asyncio.Future[Any]] = [running, failure]

        def failed(error: BaseException) -> None:
            if not failure.done():
                failure.set_exception(error)

        def passed(task: asyncio.Task[None]) -> None:
            if not task.cancelled() and (error := task.exception()) is not None:
                failed(error)

        def asked() -> None:
            try:
                numbers = os.read(ask, 1 << 12).split()
            except BlockingIOError:
                return
            except OSError as error:
                failed(error)
                return
            for number in numbers:
                task = asyncio.ensure_future(self._pass(number.decode()))
                task.add_done_callback(passed)
                passing.add(task)

        try:
            with self._asking() as ask:
                asyncio.get_running_loop().add_reader(ask, asked)
                try:
                    await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    asyncio.get_running_loop().remove_reader(ask)
            if not running.done():
                failure.result()
            return running.result()
        finally:
            for one in (*both, *passing):
                one.cancel()
            await asyncio.gather(*both, *passing, return_exceptions=True)

    @contextlib.contextmanager
    def _asking(self) -> Iterator[int]:
        """Make the pipes; the end at which the daemon hears who asks. Raises OSError."""
        self._folder.mkdir(exist_ok=True)
        for name in (_ASK, *map(str, range(self._count))):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._folder / name, 0o600)
        ask = os.open(self._folder / _ASK, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            yield ask
        finally:
            os.close(ask)

    async def _pass(self, number: str) -> None:
        """Let a command through, and hold its permit until it has ended. Raises OSError."""
        self.share.last = int(number) == self._count - 1  # the link
        async with self._permits.hold(self.share, first=int(number) in self._first):
            if int(number) in self._first:
                self._first.remove(int(number))
                if not self._first:
                    self._on_begun()
            pipe = await self._opened(self._folder / number)
            if pipe is not None:
                began = time.monotonic()
                try:
                    await _ended(pipe)
                finally:
                    self.ran[int(number)] = (began, time.monotonic())

    @staticmethod
    async def _opened(path: Path) -> int | None:
        """The pipe that a shell waits at; None when it was killed meanwhile."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _GONE_SECONDS
        while loop.time() < until:
            try:
                return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
            await asyncio.sleep(_AGAIN_SECONDS)
        return None


async def _ended(pipe: int) -> None:
    """Wait until nobody has the other end of a pipe any more."""
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        loop.add_reader(pipe, ended.set)  # an error is what there is to be read
        await ended.wait()
    finally:
        loop.remove_reader(pipe)
        os.close(pipe)
