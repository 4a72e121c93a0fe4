"""Have each command that ninja starts wait for a permit.

ninja decides what comes next, and the daemon when: the shell of a command writes its number into the pipe ``ask``, and
opens a pipe of its own, which the daemon opens when there is a permit. The command holds that pipe open as long as it
runs, so that the daemon sees it end, also when it was killed.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

from warmcc.daemon.permits import Permits, Share

_ASK = "ask"
_AGAIN_SECONDS = 0.001  # until the shell that has asked opens its pipe: its next system call
_GONE_SECONDS = 5.0  # a shell that has not done so by then was killed


class Gates:
    """The pipes of one run, in a folder of its own below ``tree``."""

    def __init__(self, tree: Path, count: int) -> None:
        self._folder = tree / "gates"
        self._count = count
        self.passed: dict[int, float] = {}  # when each command went on (monotonic)
        self._word = shlex.quote(f"{self._folder}/")
        word = re.escape(self._word)
        self._text = re.compile(rf"echo \d+ >{word}{_ASK} && exec 9<{word}\d+ && ")

    def command(self, number: int) -> str:
        """What stands in front of a command, as the shell reads it."""
        return f"echo {number} >{self._word}{_ASK} && exec 9<{self._word}{number} && "

    def without(self, text: str) -> str:
        """What ninja printed, without what stands in front of commands."""
        return self._text.sub("", text)

    @contextlib.asynccontextmanager
    async def open(self, permits: Permits, share: Share) -> AsyncIterator[None]:
        """Give permits of a share to the commands of the run that happens in the block. Raises OSError."""
        self._folder.mkdir(exist_ok=True)
        for name in (_ASK, *map(str, range(self._count))):
            with contextlib.suppress(FileExistsError):
                os.mkfifo(self._folder / name, 0o600)
        ask = os.open(self._folder / _ASK, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        loop = asyncio.get_running_loop()
        running: set[asyncio.Task[None]] = set()

        def asked() -> None:
            for number in os.read(ask, 1 << 12).split():
                task = loop.create_task(self._pass(number.decode(), permits, share))
                running.add(task)

        try:
            loop.add_reader(ask, asked)
            yield
        finally:
            loop.remove_reader(ask)
            os.close(ask)
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)

    async def _pass(self, number: str, permits: Permits, share: Share) -> None:
        """Let a command through, and hold its permit until it has ended."""
        async with permits.hold(share):
            with contextlib.suppress(FileNotFoundError):
                pipe = await self._opened(self._folder / number)
                if pipe is not None:
                    self.passed[int(number)] = asyncio.get_running_loop().time()
                    await _ended(pipe)

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
