"""A daemon of a benchmark's own, with the folders and the environment that it and its callers
have.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

import psutil

from benchmarks.harness.measuring import Unsound

Side = Literal["warmcc", "stock", "tvm_ffi"]

START_SECONDS = 60.0
STOP_SECONDS = 20.0
_IDLE_SECONDS = 20.0
_IDLE_SHARE = 0.3  # processor seconds a second, of a daemon that does nothing


class World:
    """Temporary folders, an environment, and a daemon of its own. Use as a context manager; nothing
    is left behind.

    ``settings`` are those of ``warmcc.config``, as text.
    """

    def __init__(self, **settings: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wcc-bench-"))
        self._runtime = Path(
            tempfile.mkdtemp(prefix="wcc-", dir="/tmp")
        )  # a socket's path has to be short
        self.environment = {
            **plain_environment(),
            "WARMCC_RUNTIME_DIR": str(self._runtime),
            "WARMCC_CACHE_DIR": str(self.folder / "cache"),
            "WARMCC_STATE_DIR": str(self.folder / "state"),
            "WARMCC_CONFIG": str(self.folder / "config.toml"),
            "WARMCC_AUTOSTART": "0",
            "WARMCC_PREWARM_CUDA": "0",
            "WARMCC_PREWARM_IDLE": "",
            "WARMCC_FALLBACK": "0",  # stock's time must never pass for warmcc's
            **{f"WARMCC_{name.upper()}": value for name, value in settings.items()},
        }
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> World:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._daemon is not None:
            self._daemon.terminate()
            try:
                self._daemon.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._daemon.kill()
                self._daemon.wait()
        for folder in (self.folder, self._runtime):
            shutil.rmtree(folder, ignore_errors=True)

    def processor_time(self) -> float:
        """Processor seconds of the daemon and of all that it started, those included that have
        ended. Raises Unsound."""
        with contextlib.suppress(psutil.NoSuchProcess):
            daemon = psutil.Process(self.pid)
            return sum(_times(one) for one in (daemon, *daemon.children(recursive=True)))
        raise Unsound(f"the daemon has ended:\n{self.log_tail('daemon.log')}")

    def wait_idle(self, limit: float = 1800.0) -> None:
        """Wait until the daemon has done nothing for a while: it begins with what may be asked for
        some day once it had no work for ten seconds."""
        until, since = time.monotonic() + limit, time.monotonic()
        used = self.processor_time()
        while time.monotonic() < min(since + _IDLE_SECONDS, until):
            time.sleep(1.0)
            before, used = used, self.processor_time()
            if used - before > _IDLE_SHARE:
                since = time.monotonic()

    @property
    def pid(self) -> int:
        """The daemon's process."""
        assert self._daemon is not None, "the daemon was not started"
        return self._daemon.pid

    def kill(self) -> None:
        """End the daemon as a crash would."""
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait()

    def start(self) -> None:
        """Start the daemon (again), and wait until it answers. Raises Unsound."""
        with open(self.folder / "daemon.log", "ab") as log:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "warmcc.daemon"], cwd="/", env=self.environment,
                start_new_session=True, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while self._ask().returncode != 0:
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise Unsound(f"the daemon does not come up:\n{self.log_tail('daemon.log')}")
            time.sleep(0.1)

    def _ask(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "warmcc.client.cli", "status", "--json"], cwd=self.folder,
            env=self.environment, capture_output=True, text=True, check=False,
        )  # fmt: skip

    def log_tail(self, name: str, lines: int = 25) -> str:
        return "\n".join((self.folder / name).read_text(errors="replace").splitlines()[-lines:])

    def status(self) -> dict[str, Any]:
        """The daemon's report (``warmcc status --json``)."""
        answer = self._ask()
        if answer.returncode != 0:
            raise Unsound(f"warmcc status failed: {answer.stderr}\n{self.log_tail('daemon.log')}")
        found: dict[str, Any] = json.loads(answer.stdout)
        return found

    def wait_for_pch(self, limit: float = 900.0) -> float:
        """Wait until the daemon has warmed up and every precompiled header is ready; gives the
        seconds waited.
        """
        started = time.monotonic()
        while True:
            status = self.status()
            profiles = status["profiles"]
            if (
                not status["prewarming"]
                and profiles
                and all(profile["state"] == "ready" for profile in profiles)
            ):
                return time.monotonic() - started
            if (
                any(profile["state"] == "failed" for profile in profiles)
                or time.monotonic() - started > limit
            ):
                raise Unsound(f"no precompiled header: {profiles}\n{self.log_tail('daemon.log')}")
            time.sleep(0.5)

    def counters(self) -> dict[str, int]:
        """How often the daemon has compiled, hit …, since it started."""
        status = self.status()
        return {
            "hits": status["requests"]["hits"],
            "compiles": status["compiles"],
            "units_reused": status["units_reused"],
            "pch_used": status["accelerators"]["pch"]["used"],
        }

    def expect(self, before: dict[str, int], **changes: int) -> dict[str, int]:
        """Check that the named counters have grown by this much since ``before``, and give them.
        Raises Unsound.
        """
        now = self.counters()
        found = {name: now[name] - before[name] for name in changes}
        if found != changes:
            raise Unsound(
                f"the daemon counted {found}, not {changes}; its figures would mean something else"
            )
        return found

    def expect_hits(self, before: dict[str, int], *, most: int) -> dict[str, int]:
        """Check that nothing was compiled since ``before``, and that the daemon had at most so many
        hits: the caller's memory gives the others. Gives what was counted. Raises Unsound."""
        hits = self.counters()["hits"] - before["hits"]
        if hits > most:
            raise Unsound(
                f"the daemon counted {hits} hits, more than {most}; its figures would "
                f"mean something else"
            )
        return {**self.expect(before, compiles=0), "hits": hits}

    # ------------------------------------------------------------------ stock's side

    def build_folder(self, side: Side, name: str) -> Path:
        """A side's build directory for an extension: one for all callers, as its default would
        be.
        """
        folder = self.folder / side / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def stock_objects(self) -> dict[str, int]:
        """Stock's object files and their times."""
        return {
            str(path): path.stat().st_mtime_ns for path in (self.folder / "stock").glob("*/*.o")
        }

    def stock_compiles(self, before: dict[str, int], count: int) -> None:
        """Check that stock has compiled so many objects since ``before`` was taken. Raises
        Unsound.
        """
        found = len(set(self.stock_objects().items()) - set(before.items()))
        if found != count:
            raise Unsound(
                f"stock compiled {found} objects, not {count}; its figures would mean "
                f"something else"
            )


def plain_environment() -> dict[str, str]:
    """The caller's environment without what would make the sides unequal or leave traces.

    Neither side uses ccache: newer torch would put it in front by itself, and a source that was
    never seen must be one. Byte code is kept, as it is for an installed package: otherwise each
    process would compile warmcc's modules anew while torch's lie ready.
    """
    dropped = ("TORCH_EXTENSIONS_DIR", "PYTHONDONTWRITEBYTECODE")
    kept = {k: v for k, v in os.environ.items() if k not in dropped and not k.startswith("WARMCC_")}
    return {**kept, "CCACHE_DISABLE": "1", "TORCH_NO_COMPILER_WRAPPER": "1"}


def _times(process: psutil.Process) -> float:
    with contextlib.suppress(psutil.Error):
        used = process.cpu_times()
        return used.user + used.system + used.children_user + used.children_system
    return 0.0
