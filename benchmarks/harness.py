"""What every scenario needs: samples taken in turns, a daemon of its own, and users' processes to
measure in.

A benchmark that measures the wrong thing is worse than none. Scenarios therefore ask the daemon's
counters and look at stock's objects whether each side did what the figure claims (``World.expect``,
``World.stock_compiles``), and fail if not.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import psutil

T = TypeVar("T")
Side = Literal["warmcc", "stock", "tvm_ffi"]

CALL_SECONDS = 900.0  # a call that takes longer is lost
START_SECONDS = 60.0
STOP_SECONDS = 20.0
CALLER = Path(__file__).with_name("caller.py")


class Unsound(RuntimeError):
    """A scenario did not measure what it says, or could not: its figures do not count."""


def say(text: str) -> None:
    """Talk goes to standard error; data to standard output."""
    print(text, file=sys.stderr, flush=True)


def seconds(value: float) -> str:
    """A time in three digits, in the unit that fits: ``21.9 s``, ``4.20 ms``."""
    if value >= 0.9995:
        return f"{value:.0f} s" if value >= 99.95 else f"{value:#.3g} s"
    return f"{value * 1000:.0f} ms" if value >= 0.09995 else f"{value * 1000:#.3g} ms"


def interleaved(repeat: int, measures: Mapping[str, Callable[[], T]]) -> dict[str, list[T]]:
    """Take ``repeat`` samples of each measure, in turns, so that a noisy minute hits all alike.

    Every other round goes backwards (A B, B A, A B …): none is always the one that comes after
    another.
    """
    taken: dict[str, list[T]] = {name: [] for name in measures}
    for number in range(repeat):
        order = list(measures)
        for name in order if number % 2 == 0 else reversed(order):
            taken[name].append(measures[name]())
            say(f"  {number + 1}/{repeat} {name}: {_shown(taken[name][-1])}")
    return taken


def _shown(sample: Any) -> str:
    return seconds(sample) if isinstance(sample, float) else str(sample)


# ---------------------------------------------------------------------- calls, and the processes that make them


@dataclass(frozen=True)
class Call:
    """One call. ``check`` is an expression over its result ``module`` (and ``torch``) that is true
    if it is right.
    """

    function: Literal["load", "load_inline"]
    name: str
    arguments: dict[str, Any]
    check: str


_numbers = itertools.count(1001)


def new_number() -> int:
    """A number that no other source of this run holds."""
    return next(_numbers)


def new_toy() -> Call:
    """A C++ toy as users write it, default headers and ``functions=``; no other call of this run
    has its source.
    """
    number = new_number()
    source = f"at::Tensor f(at::Tensor x) {{ return x * {number}; }}"
    check = f"module.f(torch.ones(1)).item() == {number}"
    return Call("load_inline", f"toy_{number}", {"cpp_sources": source, "functions": ["f"]}, check)


@dataclass(frozen=True)
class Answer:
    """When a call started and when its module was there, on the machine's clock
    (``time.perf_counter``).
    """

    started: float
    ended: float

    @property
    def seconds(self) -> float:
        return self.ended - self.started


class Caller:
    """A user's process (``caller.py``) that has torch and the given sides imported. Use as a
    context manager.

    ``environment`` is laid over the world's; None removes a variable.
    """

    def __init__(
        self, world: World, *sides: Side, environment: Mapping[str, str | None] | None = None
    ) -> None:
        self._world = world
        self._asked: list[Call] = []
        self.started = time.perf_counter()
        variables = {**world.environment, **(environment or {})}
        kept = {name: value for name, value in variables.items() if value is not None}
        with open(world.folder / "callers.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(CALLER), *sides], cwd=world.folder, env=kept, bufsize=0,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
            )  # fmt: skip

    def __enter__(self) -> Caller:
        self.import_seconds: float = self._line()["import"]
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            kill_family(self._process.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not select.select([self._process.stdout], [], [], CALL_SECONDS)[0]:
            raise Unsound(f"a call has not come back within {CALL_SECONDS:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise Unsound(f"a measured process failed:\n{self._world.log_tail('callers.log')}")
        found: dict[str, Any] = json.loads(line)
        return found

    def send(self, side: Side, call: Call) -> None:
        """Let the process make a call, without waiting for it."""
        arguments = {"name": call.name, **call.arguments}
        if side != "warmcc":
            arguments["build_directory"] = str(self._world.build_folder(side, call.name))
        message = {
            "side": side,
            "function": call.function,
            "arguments": arguments,
            "check": call.check,
        }
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._asked.append(call)

    def receive(self) -> Answer:
        """The answer to the oldest call that has none yet. Raises Unsound when its module is not
        right.
        """
        found, call = self._line(), self._asked.pop(0)
        if not found["right"]:
            raise Unsound(f"{call.name} was built, but this is false: {call.check}")
        return Answer(found["started"], found["ended"])

    def make(self, side: Side, call: Call) -> float:
        """Make a call and give the seconds that it took."""
        self.send(side, call)
        return self.receive().seconds

    def end(self) -> float:
        """Let the process end by itself; gives the seconds from its start to its end."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        if self._process.wait(CALL_SECONDS) != 0:
            raise Unsound(
                f"a measured process failed at its end:\n{self._world.log_tail('callers.log')}"
            )
        return time.perf_counter() - self.started


def kill_family(pid: int) -> None:
    """Kill a process and what it has started: stock's ninja gives each compiler a process group of
    its own.
    """
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for one in [*process.children(recursive=True), process]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()


# ---------------------------------------------------------------------- the daemon


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
            self._start()
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

    def _start(self) -> None:
        with open(self.folder / "daemon.log", "ab") as log:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "warmcc.daemon"], cwd="/", env=self.environment, start_new_session=True,
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while self._ask().returncode != 0:
            if self._daemon.poll() is not None or time.monotonic() > deadline:
                raise Unsound(f"the daemon does not come up:\n{self.log_tail('daemon.log')}")
            time.sleep(0.1)

    def _ask(self) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "warmcc.client.cli", "status", "--json"], cwd=self.folder, env=self.environment,
            capture_output=True, text=True, check=False,
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
                f"the daemon counted {hits} hits, more than {most}; its figures would mean something else"
            )
        return {**self.expect(before, compiles=0), "hits": hits}

    # ------------------------------------------------------------------ stock's side

    def build_folder(self, side: Side, name: str) -> Path:
        """A side's build directory for an extension: one for all callers, as its default would be."""
        folder = self.folder / side / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def stock_objects(self) -> dict[str, int]:
        """Stock's object files and their times."""
        return {
            str(path): path.stat().st_mtime_ns for path in (self.folder / "stock").glob("*/*.o")
        }

    def stock_compiles(self, before: dict[str, int], count: int) -> None:
        """Check that stock has compiled so many objects since ``before`` was taken. Raises Unsound."""
        found = len(set(self.stock_objects().items()) - set(before.items()))
        if found != count:
            raise Unsound(
                f"stock compiled {found} objects, not {count}; its figures would mean something else"
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
