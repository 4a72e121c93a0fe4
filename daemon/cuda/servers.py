"""Fork servers: a compiler front end that has read its prelude, and forks once per unit (``native/forkserver.c``).

A server is started once, serves until it is closed or dies, and is never repaired: whoever asks a dead one gets
``ServerDied``, goes on without it, and has it replaced.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import select
import signal
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warmcc import digest, paths
from warmcc.daemon.process import Runner

SOURCE = Path(__file__).parents[1] / "native" / "forkserver.c"
SOCKETS = "f????????*"  # their names, with a ~ until they listen; short, because a socket's path is
START_SECONDS = 120.0
_COMPILE_SECONDS = 60.0
_AHEAD = b"+"


class ServerDied(Exception):
    """A fork server did not start, or went away; the text says what is known."""


@dataclass(frozen=True)
class Served:
    """How a fork ended: its exit status (negative for a signal), and what it printed."""

    code: int
    output: str


class Library:
    """The preload library, compiled with the C compiler of the toolchain at first use and kept by content."""

    def __init__(self, root: Path, runner: Runner) -> None:
        self._root = root
        self._runner = runner
        self._lock = asyncio.Lock()

    async def path(self, compiler: str, environment: dict[str, str]) -> Path:
        """Raises ServerDied when it cannot be compiled."""
        place = self._root / f"forkserver-{digest.of_value([compiler, digest.of_file(SOURCE)])[:16]}.so"
        async with self._lock:
            if not place.exists():
                self._root.mkdir(parents=True, exist_ok=True)
                draft = self._root / f"{secrets.token_hex(8)}.so"
                words = [compiler, "-O2", "-shared", "-fPIC", str(SOURCE), "-o", str(draft), "-ldl"]
                done = await self._runner.run(words, cwd=self._root, environment=environment, timeout=_COMPILE_SECONDS)
                if done.code != 0:
                    draft.unlink(missing_ok=True)
                    raise ServerDied(f"the preload library did not compile: {done.output.strip()[-500:]}")
                draft.rename(place)
        return place


class ForkServer:
    """One stopped front end. ``folder`` is its own; its output so far is there."""

    def __init__(self, name: str, runner: Runner, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.served = 0
        self.prelude = ""  # the digest of the text that it has read
        self._runner = runner
        self._socket = paths.runtime_dir() / f"f{secrets.token_hex(4)}"
        self._life: asyncio.Task[str] | None = None
        self._closed = False
        self._ahead: socket.socket | None = None  # to a fork that waits for its unit

    async def start(
        self, words: list[str], environment: dict[str, str], library: Path, *, stop: str, output: str | None = None,
        huge: bool = False,
    ) -> None:  # fmt: skip
        """Start ``words`` and wait until it has stopped at the file ``stop``; limits of its forks are in the
        environment. With ``huge`` they copy its memory into huge pages first. Raises ServerDied."""
        if self._closed:
            raise ServerDied(f"{self.name} was closed before it started")
        variables = {
            **environment, "LD_PRELOAD": str(library), "TMPDIR": str(self.folder), "WARMCC_STOP": stop,
            "WARMCC_SOCKET": str(self._socket),
        }  # fmt: skip
        if output is not None:
            variables["WARMCC_OUTPUT"] = output
        if huge:
            variables["WARMCC_HUGE"] = "1"
        self._life = asyncio.create_task(self._live(words, variables))
        deadline = time.monotonic() + START_SECONDS
        while not self._socket.exists():
            if self._life.done():
                raise ServerDied(f"{self.name} ended before its unit's file: {self._life.result()[-2000:].strip()}")
            if time.monotonic() > deadline:
                await self.close()
                raise ServerDied(f"{self.name} did not come to its unit's file in {START_SECONDS:.0f} s")
            await asyncio.sleep(0.01)

    async def _live(self, words: list[str], variables: dict[str, str]) -> str:
        done = await self._runner.run(words, cwd=self.folder, environment=variables, timeout=float(1 << 30))
        return done.output

    def on_death(self, call: Callable[[], None]) -> None:
        """Have something called when it ends by itself."""
        assert self._life is not None
        self._life.add_done_callback(lambda _: None if self._closed else call())

    @property
    def alive(self) -> bool:
        return self._life is not None and not self._life.done()

    @property
    def address(self) -> str:
        """Where it listens."""
        return str(self._socket)

    @property
    def is_ahead(self) -> bool:
        """Whether a fork waits for its unit."""
        return self._ahead is not None

    async def fork_ahead(self) -> None:
        """Fork for the next unit now, and have the fork's memory copied. Raises ServerDied."""
        if self._ahead is not None:
            return
        client = await self._connect()
        try:
            answer = await self._ask(client, _AHEAD, START_SECONDS)
            if answer != _AHEAD or self._closed:
                raise ServerDied(f"{self.name} did not fork ahead")
        except BaseException:
            client.close()
            raise
        self._ahead = client

    def let_go(self) -> None:
        """Have the fork that waits, if any, killed."""
        if self._ahead is not None:
            self._ahead.close()
            self._ahead = None

    async def run(self, folder: Path, timeout: float) -> Served:
        """Have the unit in a folder compiled there. Raises ServerDied; kills the fork when it takes too long or this
        is cancelled."""
        self.served += 1
        ahead, self._ahead = self._ahead, None
        answer = b""
        if ahead is not None:
            with ahead:
                ended = select.select([ahead], [], [], 0)[0]
                answer = b"" if ended else await self._ask(ahead, os.fsencode(folder), timeout)
        if not answer or _exit_code(answer) == -signal.SIGKILL:  # none waited, or it was killed while it did
            with await self._connect() as client:
                answer = await self._ask(client, os.fsencode(folder), timeout)
        if not answer:
            raise ServerDied(f"{self.name} went away")
        output = (folder / "log").read_text(encoding="utf-8", errors="replace") if (folder / "log").exists() else ""
        return Served(_exit_code(answer), output)

    async def _connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        client.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(client, str(self._socket))
        except BaseException as error:
            client.close()
            if isinstance(error, OSError):
                raise ServerDied(f"{self.name}: {error}") from error
            raise
        return client

    async def _ask(self, client: socket.socket, text: bytes, timeout: float) -> bytes:
        """Its answer; nothing when it hung up."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(client, text)
            return await asyncio.wait_for(loop.sock_recv(client, 64), timeout)
        except asyncio.TimeoutError as error:  # an OSError too, since Python 3.11
            raise ServerDied(f"{self.name} took too long") from error
        except OSError:
            return b""

    async def close(self) -> None:
        """Kill it, with all its forks."""
        self._closed = True
        self.let_go()
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        for left in self._socket.parent.glob(f"{self._socket.name}*"):
            left.unlink(missing_ok=True)


def _exit_code(answer: bytes) -> int:
    return os.waitstatus_to_exitcode(int(answer.split()[0]))
