"""Run one build command in its own session, under the reaper, with limits.

The command starts only after the reaper knows its session: a shell waits for a line on its standard
input first, so a daemon that dies in between leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from warmcc.daemon.system import reaper, resources
from warmcc.daemon.system.background import Background, Step

if TYPE_CHECKING:
    from warmcc.daemon.system.sandbox import Sandbox

log = logging.getLogger(__name__)

# Bytes of output kept of one command; a compiler that prints more is drained and cut
OUTPUT_LIMIT = 8 << 20
_GATE = 'read -r _ && {limits}{aside}exec {tied}"$@" </dev/null'
# A session has a share of the processor of its own where the kernel groups by session
# (CONFIG_SCHED_AUTOGROUP, usual on Debian and Ubuntu), and nice is for those within it: then the
# session itself gives way.
_NICE = 10
_ASIDE = (
    f"{{ echo {_NICE} >/proc/self/autogroup; }} 2>/dev/null; "
    f'set -- {shutil.which("nice") or "nice"} -n {_NICE} "$@"; '
)

# What is started ends with the daemon, also where the reaper was killed with it; ninja then ends
# its compilers.
_TIED = ("--pdeathsig", "TERM")


def _tied() -> str:
    """The words in front of a command that tie it to the daemon; none if it is not installed."""
    found = shutil.which("setpriv")
    if (
        found is None
        or subprocess.run([found, *_TIED, "true"], capture_output=True).returncode != 0
    ):
        return ""
    return f"{shlex.join([found, *_TIED])} "


@dataclass(frozen=True)
class Limits:
    """What one process of a build may take; 0: as much as the daemon.
    Address space and file size in bytes, processes of its user, open files."""

    memory: int = 0
    file_size: int = 0
    processes: int = 0
    files: int = 0

    def script(self) -> str:
        """The limits as shell commands; no cores are dumped, and lower limits stay."""
        wanted = {
            "-v": self.memory // 1024,
            "-f": self.file_size // 512,
            "-p": self.processes,
            "-n": self.files,
        }
        lines = [
            f"ulimit -S {flag} {value} 2>/dev/null; " for flag, value in wanted.items() if value > 0
        ]
        return "".join(["ulimit -c 0; ", *lines])


@dataclass(frozen=True)
class Finished:
    """How a command ended.
    ``code`` is the exit status, negative for a signal; ``timed_out`` when the limit ran out."""

    code: int
    output: str
    timed_out: bool = False


class _Door:
    """The pipe at which a command waits for its beginning.
    When it closes unopened, the shell there ends by itself."""

    def __init__(self) -> None:
        self.theirs, self._ours = os.pipe()

    def open(self) -> None:
        with contextlib.suppress(BrokenPipeError):  # it was killed already
            os.write(self._ours, b"\n")
        self._close()

    def _close(self) -> None:
        ends, self.theirs, self._ours = {self.theirs, self._ours} - {-1}, -1, -1
        for end in ends:
            os.close(end)

    def __enter__(self) -> _Door:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


@contextlib.asynccontextmanager
async def _output(process: subprocess.Popen[bytes]) -> AsyncIterator[asyncio.StreamReader]:
    """What a process prints; closed with the block."""
    reader = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    assert process.stdout is not None
    with process.stdout:
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), process.stdout
        )
        try:
            yield reader
        finally:
            transport.close()


async def _end_of(process: subprocess.Popen[bytes]) -> int:
    """Wait for a process that is about to end: it has closed its output, or was killed."""
    pause = 0.001
    while (code := process.poll()) is None:
        await asyncio.sleep(pause)
        pause = min(2 * pause, 0.05)
    return code


async def _kill_session(sid: int) -> set[int]:
    try:
        return await asyncio.to_thread(reaper.kill_session, sid)
    except RuntimeError:  # no thread can be started: better that everybody waits for a moment
        return reaper.kill_session(sid)


class Runner:
    """Starts commands, and the reaper that outlives the daemon.
    One per daemon. ``marks`` are variables that every command gets (see ``remains.py``);
    ``sandbox`` is what every command is confined by; steps of ``background`` give way to
    builds; ``prepared`` adds variables to those of a command."""

    def __init__(
        self, limits: Limits | None = None, *, marks: dict[str, str] | None = None,
        sandbox: Sandbox | None = None, background: Background | None = None,
        prepared: Callable[[dict[str, str]], dict[str, str]] = dict,
    ) -> None:  # fmt: skip
        self._limits = (limits or Limits()).script()
        self._marks = marks or {}
        self.sandbox = sandbox
        self.background = background or Background()
        self._prepared = prepared
        self._tied = _tied()
        self._reaper: subprocess.Popen[bytes] | None = None
        self._sessions: set[int] = set()

    def _tell(self, line: str) -> None:
        for attempt in (1, 2):
            if self._reaper is None or self._reaper.poll() is not None:
                self._start_reaper()
            assert self._reaper is not None and self._reaper.stdin is not None
            try:
                self._reaper.stdin.write(line.encode())
                self._reaper.stdin.flush()
                return
            except BrokenPipeError:
                self._reaper = None
                if attempt == 2:
                    raise

    def _start_reaper(self) -> None:
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(Path(reaper.__file__))],
            stdin=subprocess.PIPE,
            start_new_session=True,
            cwd="/",
        )
        assert self._reaper.stdin is not None
        for sid in self._sessions:  # a reaper that was killed is replaced, and told what runs
            self._reaper.stdin.write(f"+{sid}\n".encode())

    async def run(
        self, argv: Sequence[str], *, cwd: Path, environment: dict[str, str], timeout: float,
        on_line: Callable[[str], None] | None = None, aside: bool = False, step: Step | None = None,
        pass_fds: Sequence[int] = (), reads: Iterable[Path] = (),
        writes: Iterable[Path] | None = None,
    ) -> Finished:  # fmt: skip
        """Run ``argv``; pass its merged output to ``on_line`` as it is printed.
        With ``aside`` it gives way to other commands: it still gets a tenth of a processor.
        As a ``step`` of the background it is stopped while builds need the machine, and its
        clock stands still then.

        ``pass_fds`` are descriptors that it gets. In a sandbox it may read what builds may, and
        ``reads``; and write ``writes``, by default the folder that it runs in. When this is
        cancelled, or ``timeout`` seconds pass, everything in the command's session is killed before
        it returns.
        """
        environment = self._prepared(environment)
        gate = _GATE.format(limits=self._limits, aside=_ASIDE if aside else "", tied=self._tied)
        if self.sandbox is not None:
            argv, environment = self.sandbox.command(
                argv, environment, reads, [cwd] if writes is None else writes
            )
        with _Door() as door:
            # Not asyncio's, which forgets what it started when there is no thread or descriptor to
            # watch it with.
            process = subprocess.Popen(
                ["/bin/sh", "-c", gate, "sh", *argv], stdin=door.theirs, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, cwd=cwd, env={**environment, **self._marks},
                start_new_session=True, pass_fds=pass_fds,
            )  # fmt: skip
            sid = process.pid
            timed_out = False
            kept: list[str] = []
            self._sessions.add(sid)
            try:
                self._tell(f"+{sid}\n")
                door.open()
                draining = self._drain(process, kept, on_line)
                try:
                    if step is None:
                        await asyncio.wait_for(draining, timeout)
                    else:
                        self.background.started(step, sid)
                        await step.within(timeout, draining)
                except asyncio.TimeoutError:
                    timed_out = True
            finally:
                if process.stdout is not None:
                    process.stdout.close()
                code = await self._end(process, argv[0])
            return Finished(code, "".join(kept), timed_out)

    async def _end(self, process: subprocess.Popen[bytes], name: str) -> int:
        """Kill whatever is left of a command's session; gives its status."""
        left = await asyncio.shield(_kill_session(process.pid))
        if left:
            log.warning(
                "processes %s of %s could not be ended",
                sorted(left),
                name,
            )
        # A leader that may not be signalled (a setuid program) would be waited for without end.
        code = -signal.SIGKILL if process.pid in left else await asyncio.shield(_end_of(process))
        self._sessions.discard(process.pid)
        with contextlib.suppress(
            OSError
        ):  # no reaper can be had now; the next one is not told of this session
            self._tell(f"-{process.pid}\n")
        return code

    @staticmethod
    async def _drain(
        process: subprocess.Popen[bytes], kept: list[str], on_line: Callable[[str], None] | None
    ) -> None:
        """Read what it prints until it ends."""
        size = 0
        partial = b""
        async with _output(process) as output:
            while block := await output.read(1 << 16):
                *lines, partial = (partial + block).split(b"\n")
                if len(partial) > OUTPUT_LIMIT:
                    lines, partial = [*lines, partial[:OUTPUT_LIMIT]], b""
                for raw in lines:
                    if size <= OUTPUT_LIMIT:
                        size += len(raw)
                        text = raw.decode("utf-8", "replace") + "\n"
                        kept.append(text if size <= OUTPUT_LIMIT else "… (more output was cut)\n")
                        if on_line is not None:
                            on_line(kept[-1])
        if partial and size <= OUTPUT_LIMIT:
            kept.append(partial.decode("utf-8", "replace"))
        await _end_of(process)

    def close(self) -> None:
        """End the reaper, which kills whatever still runs."""
        if self._reaper is not None and self._reaper.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._reaper.stdin.close()
            with contextlib.suppress(
                subprocess.TimeoutExpired
            ):  # it ends by itself, once it has killed what it can
                self._reaper.wait(timeout=2 * reaper.PATIENCE_SECONDS)
            self._reaper = None


def started_threads() -> ThreadPoolExecutor:
    """The event loop's threads, all of them running.
    One that is to be started later may not be had then, and its work would be done by another
    one after the caller was told that it failed. Raises OSError."""
    count = min(32, resources.processors() + 4)
    threads, met = ThreadPoolExecutor(count), threading.Barrier(count + 1)
    try:
        for _ in range(count):
            threads.submit(met.wait)
        met.wait()
    except RuntimeError as error:
        met.abort()
        threads.shutdown(wait=False)
        raise OSError(
            errno.EAGAIN, f"{count} threads cannot be started: out of processes or memory"
        ) from error
    return threads


def start_of(pid: int) -> str:
    """When a process began, in clock ticks since boot; '' when there is none.
    With its pid that is its identity."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""
