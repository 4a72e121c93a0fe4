"""Run one build command in a session of its own, watched by the reaper, with limits on time and output.

The command starts only after the reaper knows its session: a shell waits for a line on its standard input first, so a
daemon that dies in between leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from warmcc.daemon import reaper

OUTPUT_LIMIT = 8 << 20  # bytes of output kept of one command; a compiler that prints more is drained and cut
_GATE = 'read -r _ && {limits}{aside}exec "$@" </dev/null'
# A session has a share of the processor of its own where the kernel groups by session (CONFIG_SCHED_AUTOGROUP, usual on
# Debian and Ubuntu), and nice is for those within it: then the session itself gives way.
_NICE = 10
_ASIDE = f'{{ echo {_NICE} >/proc/self/autogroup; }} 2>/dev/null; set -- nice -n {_NICE} "$@"; '


@dataclass(frozen=True)
class Limits:
    """What one process of a build may take: address space and file size in bytes, processes of its user; 0: any."""

    memory: int = 0
    file_size: int = 0
    processes: int = 0

    def script(self) -> str:
        """The same as the shell sets it; it dumps no cores in any case, and what is lower already stays."""
        wanted = [("-v", self.memory // 1024), ("-f", self.file_size // 512), ("-p", self.processes)]
        lines = [f"ulimit -S {flag} {value} 2>/dev/null; " for flag, value in wanted if value]
        return "".join(["ulimit -c 0; ", *lines])


@dataclass(frozen=True)
class Finished:
    """How a command ended. ``code`` is the exit status, negative for a signal; ``timed_out`` when the limit ran out."""

    code: int
    output: str
    timed_out: bool = False


class Runner:
    """Starts commands, and the reaper that outlives the daemon. One per daemon."""

    def __init__(self, limits: Limits | None = None) -> None:
        self._limits = (limits or Limits()).script()
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
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        environment: dict[str, str],
        timeout: float,
        on_line: Callable[[str], None] | None = None,
        aside: bool = False,
    ) -> Finished:
        """Run ``argv``; its standard output and error, merged, are given to ``on_line`` as they come. With
        ``aside`` it gives way to what somebody waits for: it still gets a tenth of a processor.

        When this is cancelled, or ``timeout`` seconds pass, everything in the command's session is killed before
        it returns.
        """
        gate = _GATE.format(limits=self._limits, aside=_ASIDE if aside else "")
        process = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", gate, "sh", *argv,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
            cwd=cwd, env=environment, start_new_session=True, limit=1 << 20,
        )  # fmt: skip
        sid = process.pid
        timed_out = False
        kept: list[str] = []
        self._sessions.add(sid)
        try:
            self._tell(f"+{sid}\n")
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.close()
            try:
                await asyncio.wait_for(self._drain(process, kept, on_line), timeout)
            except asyncio.TimeoutError:
                timed_out = True
        finally:
            await asyncio.shield(asyncio.to_thread(reaper.kill_session, sid))
            code = await asyncio.shield(process.wait())
            self._sessions.discard(sid)
            self._tell(f"-{sid}\n")
        return Finished(code, "".join(kept), timed_out)

    @staticmethod
    async def _drain(
        process: asyncio.subprocess.Process, kept: list[str], on_line: Callable[[str], None] | None
    ) -> None:
        assert process.stdout is not None
        size = 0
        partial = b""
        while block := await process.stdout.read(1 << 16):
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
        await process.wait()

    def close(self) -> None:
        """End the reaper, which kills whatever still runs."""
        if self._reaper is not None and self._reaper.stdin is not None:
            with contextlib.suppress(BrokenPipeError):
                self._reaper.stdin.close()
            self._reaper.wait(timeout=2 * reaper.PATIENCE_SECONDS)
            self._reaper = None


def available_memory() -> int:
    """Bytes that new processes may use, as the kernel estimates it (``MemAvailable``)."""
    import psutil

    return int(psutil.virtual_memory().available)


def total_memory() -> int:
    """Bytes of memory of this machine."""
    import psutil

    return int(psutil.virtual_memory().total)


def processors() -> int:
    return len(os.sched_getaffinity(0))


def start_of(pid: int) -> str:
    """When a process began, in clock ticks since boot; '' when there is none. With its pid that is its identity."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""
