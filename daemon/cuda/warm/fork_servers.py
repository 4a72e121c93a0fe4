"""Fork servers: a compiler front end that has read its prelude, and forks once per unit
(``native/forkserver.c``).

A server is started once, serves until it is closed or dies, and is never repaired: whoever asks a
dead one gets ``ServerDied``, goes on without it, and has it replaced. One that cannot fork says so
(``CannotFork``), and serves on.

Two sockets are made here and handed on to it: one that listens, and its life line, on which it says
that it has stopped. When the daemon has gone, however that happened, the line hangs up, and the
server ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import select
import shutil
import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warmcc import digest, paths
from warmcc.daemon import native
from warmcc.daemon.system.background import Haste, Step
from warmcc.daemon.system.runner import Runner

SOURCES = [native.path(name) for name in ("forkserver.c", "confine.h")]
SOCKETS = "f????????"  # their names; short, because a socket's path is
START_SECONDS = 600.0  # minutes at the lowest priority of a busy machine; nobody waits so long
_AHEAD_SECONDS = 120.0
_COMPILE_SECONDS = 60.0
_AHEAD = b"+"
_BACKLOG = 64


class ServerDied(Exception):
    """A fork server did not start, or went away; the text says what is known."""


class CannotFork(OSError):
    """A fork server lives, and could not make a fork or watch it: processes, memory or descriptors
    are short.
    """


@dataclass(frozen=True)
class Served:
    """How a fork ended: its exit status (negative for a signal), and what it printed."""

    code: int
    output: str


class ServerLibrary:
    """The preload library, compiled with the C compiler of the toolchain at first use and kept by
    content.
    """

    def __init__(self, root: Path, runner: Runner) -> None:
        self._root = root
        self._runner = runner
        self._lock = asyncio.Lock()

    async def path(self, compiler: str, environment: dict[str, str]) -> Path:
        """Raises ServerDied when it cannot be compiled."""
        place = (
            self._root
            / f"forkserver-{digest.of_value([compiler, *map(digest.of_file, SOURCES)])[:16]}.so"
        )
        async with self._lock:
            if not place.exists():
                draft = self._root / secrets.token_hex(8)
                draft.mkdir(parents=True)
                try:
                    await self._compile(compiler, environment, draft)
                    (draft / "library.so").rename(place)
                finally:
                    shutil.rmtree(draft, ignore_errors=True)
        return place

    async def _compile(self, compiler: str, environment: dict[str, str], folder: Path) -> None:
        words = [compiler, "-O2", "-shared", "-fPIC", str(SOURCES[0]), "-o", "library.so", "-ldl"]
        environment = {**environment, "TMPDIR": str(folder)}
        done = await self._runner.run(
            words, cwd=folder, environment=environment, timeout=_COMPILE_SECONDS
        )
        if done.code != 0:
            raise ServerDied(f"the preload library did not compile: {done.output.strip()[-500:]}")


class ForkServer:
    """One stopped front end. ``folder`` is its own; its output so far is there."""

    def __init__(self, name: str, runner: Runner, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.prelude = ""  # the digest of the text that it has read
        self.memory = 0  # bytes that it held when it had started
        self.users = 0  # levels that have it (``pool.py``)
        self.prologue = ""  # of an empty unit (``level.py``), once it compiled one
        self._runner = runner
        self._socket = paths.runtime_dir() / f"f{secrets.token_hex(4)}"
        self._line: socket.socket | None = None  # hangs up with this process
        self._life: asyncio.Task[str] | None = None
        self._closed = False
        self._ahead: socket.socket | None = None  # to a fork that waits for its unit

    async def start(
        self, words: list[str], environment: dict[str, str], library: Path, *,
        stop: str, output: str | None = None,
        huge: bool = False, haste: Haste | None = None,
    ) -> None:  # fmt: skip
        """Start ``words`` and wait until it has stopped at the file ``stop``; limits of its forks
        are in the environment. With ``huge`` they copy its memory into huge pages first. It
        gives way to builds until then, unless there is ``haste``. Raises ServerDied, OSError."""
        if self._closed:
            raise ServerDied(f"{self.name} was closed before it started")
        variables = {
            **environment, "LD_PRELOAD": str(library), "TMPDIR": str(self.folder),
            "WARMCC_STOP": stop,
            "WARMCC_SOCKET": str(self._socket),
        }  # fmt: skip
        if output is not None:
            variables["WARMCC_OUTPUT"] = output
        if huge:
            variables["WARMCC_HUGE"] = "1"
        self._line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._line.setblocking(False)
        # Both are the server's alone once it runs: what connects to a dead one is refused.
        with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(str(self._socket))
            listener.listen(_BACKLOG)
            listener.setblocking(False)
            variables |= {
                "WARMCC_LISTENER": str(listener.fileno()),
                "WARMCC_LIFE": str(theirs.fileno()),
            }
            with self._runner.background.step() as step:
                (haste or Haste()).runs(step)
                self._life = asyncio.create_task(
                    self._live(words, variables, [listener.fileno(), theirs.fileno()], step)
                )
                await self._stopped(self._line, self._life, step)

    async def _stopped(self, line: socket.socket, life: asyncio.Task[str], step: Step) -> None:
        """Wait until it says so. Raises ServerDied."""
        said = asyncio.create_task(asyncio.get_running_loop().sock_recv(line, 1))
        either = asyncio.wait({said, life}, return_when=asyncio.FIRST_COMPLETED)
        try:
            with contextlib.suppress(asyncio.TimeoutError):
                await step.within(START_SECONDS, either)
            if life.done():
                raise ServerDied(
                    f"{self.name} ended before its unit's file: {life.result()[-2000:].strip()}"
                )
            if not said.done():
                await self.close()
                raise ServerDied(
                    f"{self.name} did not come to its unit's file in {START_SECONDS:.0f} s"
                )
        finally:
            said.cancel()
            await asyncio.gather(said, return_exceptions=True)

    async def _live(
        self, words: list[str], variables: dict[str, str], descriptors: list[int], step: Step
    ) -> str:
        writes = None
        if self._runner.sandbox is not None:
            writes, more = self._runner.sandbox.of_server(self.folder)
            variables = {**variables, **more}
        done = await self._runner.run(
            words, cwd=self.folder, environment=variables, timeout=float(1 << 30),
            step=step, pass_fds=descriptors,
            writes=writes,
        )  # fmt: skip
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
        """Fork for the next unit now, and have the fork's memory copied. Raises ServerDied,
        CannotFork.
        """
        if self._ahead is not None:
            return
        client = await self._connect()
        try:
            answer = await self._ask(client, _AHEAD, _AHEAD_SECONDS)
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
        """Have the unit in a folder compiled there. Raises ServerDied, CannotFork; kills the fork
        when it takes too long or this is cancelled."""
        ahead, self._ahead = self._ahead, None
        answer = b""
        if ahead is not None:
            with ahead:
                ended = select.select([ahead], [], [], 0)[0]
                answer = b"" if ended else await self._ask(ahead, os.fsencode(folder), timeout)
        if (
            not answer or _exit_code(answer) == -signal.SIGKILL
        ):  # none waited, or it was killed while it did
            with await self._connect() as client:
                answer = await self._ask(client, os.fsencode(folder), timeout)
        if not answer:
            raise ServerDied(f"{self.name} went away")
        output = (
            (folder / "log").read_text(encoding="utf-8", errors="replace")
            if (folder / "log").exists()
            else ""
        )
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
        """Its answer; nothing when it hung up. Raises CannotFork, and ServerDied when it took too
        long.
        """
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):  # it may have answered, and hung up
            await loop.sock_sendall(client, text)
        try:
            answer = await asyncio.wait_for(self._receive(client), timeout)
        except asyncio.TimeoutError as error:  # an OSError too, since Python 3.11
            raise ServerDied(f"{self.name} took too long") from error
        except OSError:
            return b""
        if answer.startswith(b"-"):
            raise CannotFork(
                int(answer[1:]), f"a fork server cannot fork: {os.strerror(int(answer[1:]))}"
            )
        return answer

    @staticmethod
    async def _receive(client: socket.socket) -> bytes:
        loop = asyncio.get_running_loop()
        try:
            return await loop.sock_recv(client, 64)
        except (
            ConnectionResetError
        ):  # told once, before what it answered, when it hung up without reading the request
            return await loop.sock_recv(client, 64)

    async def close(self) -> None:
        """Kill it, with all its forks."""
        self._closed = True
        self.let_go()
        if self._life is not None:
            self._life.cancel()
            await asyncio.gather(self._life, return_exceptions=True)
        if self._line is not None:
            self._line.close()
        self._socket.unlink(missing_ok=True)


def _exit_code(answer: bytes) -> int:
    return os.waitstatus_to_exitcode(int(answer.split()[0]))
