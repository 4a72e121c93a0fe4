"""``warmcc doctor``: check this machine, and report each problem with its remedy.
``--fix`` applies the remedies that are safe.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from warmcc import config, paths
from warmcc.client.cli import problem_report
from warmcc.client.cli.display.output import as_json, size, talk
from warmcc.errors import ConfigError, DaemonError, VersionMismatch, WarmccError
from warmcc.status import read

_MARKS = {"ok": "✓", "note": "·", "bad": "✗"}
_SPACE = 8 << 30  # bytes that a store, precompiled headers and a warm level take
_STALE_SECONDS = 600.0


@dataclass(frozen=True)
class Finding:
    """One line: ``state`` is ok, note (could be better) or bad.
    ``fix`` mends it, and says what it did."""

    title: str
    state: str
    text: str
    advice: str = ""
    fix: Callable[[], str] | None = None


def add_doctor(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--fix", action="store_true", help="repair folder modes and remove stale locks"
    )
    parser.add_argument(
        "--report", nargs="?", const=problem_report.NAME, metavar="FILE",
        help=f"write what helps to find a problem into an archive (default: {problem_report.NAME})",
    )  # fmt: skip


def cmd_doctor(arguments: argparse.Namespace) -> int:
    found = []
    checks = (
        _python, _torch, _compiler, _ninja, _tools, _cuda, _settings, _folders, _disk, _limits,
        _locks, _daemon,
    )  # fmt: skip
    for check in checks:
        for one in check():
            if arguments.fix and one.fix is not None:
                one = _mended(one)
            found.append(one)
            if not arguments.json:
                print(f"{_MARKS[one.state]} {one.title:<11} {one.text}")
                if one.advice:
                    print(f"  {'':<11} → {one.advice}")
    bad = sum(one.state == "bad" for one in found)
    if arguments.report is not None:
        place = Path(arguments.report)
        names = problem_report.write(
            place, [f"{o.state}: {o.title}: {o.text} {o.advice}".rstrip() for o in found]
        )
        talk(f"wrote {place}: {', '.join(names)}. Look through it before you send it.")
    if arguments.json:
        as_json(
            [
                {"title": o.title, "state": o.state, "text": o.text, "advice": o.advice}
                for o in found
            ]
        )
    elif bad:
        fixable = any(one.fix and one.state == "bad" for one in found)
        hint = "; `warmcc doctor --fix` can repair some" if fixable else ""
        print(f"\n{bad} problem{'s' * (bad > 1)} found{hint}")
    return 1 if bad else 0


def _mended(one: Finding) -> Finding:
    assert one.fix is not None
    try:
        return Finding(one.title, "ok", one.fix())
    except OSError as error:
        return Finding(one.title, "bad", f"{one.text}; could not be repaired: {error}", one.advice)


def _said(*command: str) -> str:
    """The first line that a program prints, or nothing."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout or done.stderr).partition("\n")[0] if done.returncode == 0 else ""


# ---------------------------------------------------------------------- what is installed


def _python() -> Iterator[Finding]:
    yield Finding("Python", "ok", f"{sys.version.split()[0]}, {sys.executable}")


def _torch() -> Iterator[Finding]:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        yield Finding(
            "torch",
            "bad",
            "not installed for this Python",
            f"{sys.executable} -m pip install torch",
        )
        return
    version = importlib.metadata.version("torch")
    old = tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < (2, 4)
    yield Finding(
        "torch", "note" if old else "ok", version, "tested with 2.4 and later" if old else ""
    )


def _compiler() -> Iterator[Finding]:
    name = os.environ.get("CXX", "c++")
    found = shutil.which(name.split()[0]) if name.split() else None
    if found is None:
        yield Finding(
            "compiler", "bad", f"{name} is not in PATH", "apt-get install g++ (or set CXX)"
        )
        return
    version = _said(found, "--version") or "it does not say its version"
    gcc = "Free Software Foundation" in (_output(found, "--version"))
    advice = "" if gcc else "with g++, precompiled headers make builds ten times faster"
    yield Finding("compiler", "ok" if gcc else "note", f"{found}: {version}", advice)


def _output(*command: str) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


def _ninja() -> Iterator[Finding]:
    bundled = None
    if (spec := importlib.util.find_spec("ninja")) is not None and spec.origin is not None:
        import ninja

        bundled = os.path.join(ninja.BIN_DIR, "ninja")
    in_path = shutil.which("ninja")
    if bundled is None and in_path is None:
        yield Finding("ninja", "bad", "not installed", f"{sys.executable} -m pip install ninja")
    elif in_path is None:
        folder = os.path.dirname(str(bundled))
        advice = f"stock torch searches only PATH for ninja: export PATH={folder}:$PATH"
        yield Finding("ninja", "note", f"{bundled}, which is not in PATH", advice)
    else:
        yield Finding("ninja", "ok", f"{in_path}: {_said(in_path, '--version')}")


def _tools() -> Iterator[Finding]:
    for title, names, what in (
        ("linker", ("mold", "ld.lld", "lld"), "links in a third of the time: apt-get install mold"),
        (
            "ccache",
            ("ccache",),
            "speeds up builds before the daemon is warm: apt-get install ccache",
        ),
    ):
        found = next((path for name in names if (path := shutil.which(name))), None)
        text = f"{found}: {_said(found, '--version')}" if found else f"no {names[0]}"
        yield Finding(title, "ok" if found else "note", text, "" if found else what)


def _cuda() -> Iterator[Finding]:
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    nvcc = (
        os.path.join(home, "bin/nvcc")
        if home
        else shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    )
    if not os.access(nvcc, os.X_OK):
        advice = f"there is no {nvcc}: set CUDA_HOME to the toolkit, or unset it" if home else ""
        yield Finding("CUDA", "bad" if home else "note", "no nvcc: only C++ is built", advice)
        return
    release = next(
        (line for line in _output(nvcc, "--version").splitlines() if "release" in line), ""
    ).strip()
    architectures = os.environ.get("TORCH_CUDA_ARCH_LIST")
    yield Finding(
        "CUDA",
        "ok",
        f"{nvcc}: {release}; architectures: {architectures or 'those of the GPUs here'}",
    )


# ---------------------------------------------------------------------- where it works


def _settings() -> Iterator[Finding]:
    file = paths.config_file()
    try:
        config.load()
    except ConfigError as error:
        yield Finding("settings", "bad", str(error), "correct it, then run: warmcc config check")
        return
    yield Finding(
        "settings", "ok", str(file) if file.exists() else f"the defaults ({file} does not exist)"
    )


def _folders() -> Iterator[Finding]:
    for title, place in (
        ("socket", paths.runtime_dir),
        ("cache", paths.cache_dir),
        ("log", paths.state_dir),
    ):
        try:
            folder = place()
            found = folder.lstat()
        except DaemonError as error:
            text, _, advice = str(error).partition("\n")
            yield Finding(title, "bad", text, advice)
            continue
        except OSError:
            yield Finding(title, "ok", f"{folder} (made when it is needed)")
            continue
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            yield Finding(
                title,
                "bad",
                f"{folder} is a symlink, or owned by another user",
                "remove it, or have it removed",
            )
        elif found.st_mode & 0o077:
            yield Finding(
                title, "bad", f"{folder} is open to others (mode {stat.S_IMODE(found.st_mode):o})",
                f"chmod 700 {folder}", _closing(folder),
            )  # fmt: skip
        elif not os.access(folder, os.W_OK):
            yield Finding(
                title, "bad", f"{folder} cannot be written", f"chmod 700 {folder}", _closing(folder)
            )
        else:
            yield Finding(title, "ok", str(folder))


def _closing(folder: Path) -> Callable[[], str]:
    def close() -> str:
        folder.chmod(0o700)
        return f"{folder}, now yours alone"

    return close


def _disk() -> Iterator[Finding]:
    folder = paths.cache_dir()
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    advice = (
        "make room, or set WARMCC_CACHE_DIR to another disk, or store_size and profile_size lower"
    )
    few = free < _SPACE
    yield Finding(
        "disk", "note" if few else "ok", f"{size(free)} free at {folder}", advice if few else ""
    )


def _limits() -> Iterator[Finding]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    low = soft < 1024
    yield Finding(
        "open files",
        "bad" if low else "ok",
        f"{soft} (at most {hard})",
        "ulimit -n 4096" if low else "",
    )
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    small = total < 4 << 30
    advice = "prewarm = [] and cuda_warm = false in the configuration" if small else ""
    yield Finding("memory", "note" if small else "ok", size(total), advice)
    watches = _number("/proc/sys/fs/inotify/max_user_watches")
    few = 0 < watches < 8192
    advice = "sysctl fs.inotify.max_user_watches=65536 (else hits take longer)" if few else ""
    yield Finding("inotify", "note" if few else "ok", f"{watches} watches", advice)


def _number(path: str) -> int:
    try:
        return int(Path(path).read_text())
    except (OSError, ValueError):
        return 0


def _locks() -> Iterator[Finding]:
    """Stale lock files of stock torch, left by a killed build.
    A build of the same name waits for such a lock forever."""
    root = Path(
        os.environ.get("TORCH_EXTENSIONS_DIR") or os.path.expanduser("~/.cache/torch_extensions")
    )
    stale = [
        lock
        for lock in (*root.glob("*/lock"), *root.glob("*/*/lock"))
        if _age(lock) > _STALE_SECONDS
    ]
    if not stale:
        yield Finding("stock locks", "ok", f"none is stale in {root}")
    for lock in stale:
        age = f"{lock} is {_age(lock) / 60:.0f} minutes old"
        text = f"{age}: stock torch will wait for this lock forever unless a build is running"
        yield Finding("stock locks", "bad", text, f"rm {lock}", _removing(lock))


def _age(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _removing(lock: Path) -> Callable[[], str]:
    def remove() -> str:
        lock.unlink(missing_ok=True)
        return f"{lock} was removed"

    return remove


# ---------------------------------------------------------------------- the daemon


def _daemon() -> Iterator[Finding]:
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Status

    try:
        with Session(autostart=os.environ.get("WARMCC_AUTOSTART", "1") != "0") as session:
            status = read(session.ask(Status).data)
    except VersionMismatch as error:
        yield Finding("daemon", "bad", str(error).partition("\n")[0], "warmcc stop; warmcc start")
        return
    except DaemonError as error:
        text, _, more = str(error).partition("\n")
        advice = more if more.startswith("Set ") else "warmcc start, and see: warmcc logs"
        yield Finding("daemon", "bad", text, advice)
        return
    yield Finding(
        "daemon", "ok", f"process {status.pid}, warmcc {status.version}, {size(status.memory)}"
    )
    if holder := status.cache.held_by:
        text = (
            f"another daemon writes to {paths.cache_dir()} ({holder}); "
            f"this one uses {status.cache.path}"
        )
        advice = (
            "two containers or machines with one home: set WARMCC_CACHE_DIR to a folder for each"
        )
        yield Finding("one writer", "note", text, advice)
    for one in status.prewarmed:
        if one.why_not:
            text = f"what was made warm for {one.language} has not served any build: {one.why_not}"
            advice = (
                "in a shell with its callers' environment: warmcc stop; warmcc start "
                "(or for a service: warmcc install-service)"
            )
            yield Finding("warm state", "note", text, "" if one.learned else advice)
    unfinished = status.accelerators.pch.unfinished
    for compiler, reason in unfinished.items():
        yield Finding(
            "plugin", "note", f"precompiled headers of {compiler} are not finished: {reason}"
        )
    left = status.requests.declined | status.requests.fallbacks
    for reason, count in sorted(left.items(), key=lambda item: -item[1])[:3]:
        yield Finding("left", "note", f"{count} requests went to stock torch: {reason}")
    yield _first_hit()


def _first_hit() -> Finding:
    """Build something small, then find it."""
    from warmcc.client.calls import arguments
    from warmcc.client.cli.seed import complete
    from warmcc.client.connection import ask
    from warmcc.protocol import Build, Built, encode

    source = 'extern "C" int warmcc_doctor() { return 1; }\n'
    given = {
        "name": "warmcc_doctor", "cpp_sources": [source], "no_implicit_headers": True,
        "is_python_module": False,
    }  # fmt: skip
    try:
        request = arguments.to_request("load_inline", complete("load_inline", given))
        ask.ask(request, len(encode(Build(0, request))))
        began = time.perf_counter()
        answer = ask.ask(request, len(encode(Build(0, request))))
        seconds = time.perf_counter() - began
    except (WarmccError, arguments.NotCarried) as error:
        return Finding(
            "first hit", "bad", f"a small extension is not built: {error}", "see: warmcc logs"
        )
    if not isinstance(answer, Built):
        text = getattr(answer, "message", "") or getattr(answer, "reason", "")
        return Finding(
            "first hit", "bad", f"a small extension is not built: {text[:200]}", "see: warmcc logs"
        )
    return Finding(
        "first hit", "ok", f"{seconds * 1000:.1f} ms for an extension that was built before"
    )
