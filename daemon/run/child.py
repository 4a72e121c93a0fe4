"""A fork of the zygote becomes the process that ``python`` would be at the same point.

All that a new process gets from its launcher is put in place here: files, working directory,
environment, process group, signals, standard streams, the words of the command line. What modules
keep of the process that imported them is made new where a new process has it new: seeds, the start
of the clock of ``logging``, the folder and the key of ``multiprocessing``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import re
import signal
import socket
import struct
import sys
import time
import zipimport
from types import ModuleType
from typing import Any

from warmcc import runs
from warmcc.daemon.run import process_title
from warmcc.daemon.run.imported import Imported
from warmcc.daemon.run.main_config import MainConfig

PATIENCE_SECONDS = 10.0  # for a launcher that does not say what it wants
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
# A script that changes where modules are found, before it imports.
_MOVES_MODULES = re.compile(
    rb"\b(?:sys\.path|meta_path|path_hooks)\s*"
    rb"(?:\.\s*(?:insert|remove|pop|clear|reverse|sort)\b|\[[^\]\n]*\]\s*=[^=]|\+?=[^=])"
    rb"|\bmeta_path\s*\.\s*append\b|\baddsitedir\b|from\s+sys\s+import[^\n]*\bpath\b"
)
_SETS_VARIABLES = re.compile(rb"\benviron|\bputenv\b|\bsetenv\b|\bload_dotenv\b")


class Refused(Exception):
    """The zygote is not right for the job; the launcher becomes python."""


def receive(connection: socket.socket) -> tuple[runs.Job, int, list[int]]:
    """The job, its working directory and its open files. Raises OSError, ValueError."""
    connection.settimeout(PATIENCE_SECONDS)
    data, descriptors, _, _ = socket.recv_fds(connection, 4, runs.DESCRIPTORS + 1)
    while len(data) < 4:
        data += _some(connection, 4 - len(data))
    (size,) = struct.unpack("!I", data)
    if size > runs.JOB_BYTES:
        raise ValueError("too long")
    blocks: list[bytes] = []
    while size:
        blocks.append(_some(connection, min(size, 1 << 18)))
        size -= len(blocks[-1])
    job = runs.decode(b"".join(blocks))
    if len(descriptors) != len(job.descriptors) + 1:
        raise ValueError("the number of files")
    return job, descriptors[0], descriptors[1:]


def _some(connection: socket.socket, size: int) -> bytes:
    block = connection.recv(size)
    if not block:
        raise EOFError("the launcher has gone")
    return block


class Checks:
    """Whether a job can run here. ``keyed`` tells variables that were looked at during import."""

    def __init__(self, facts: str, imported: Imported, keyed: re.Pattern[bytes]) -> None:
        self.facts = facts
        self.imported = imported
        self._keyed = keyed

    def check(self, job: runs.Job) -> None:
        """In the job's working directory. Raises Refused."""
        if job.facts != self.facts:
            raise Refused("its circumstances are others")
        if reason := self.imported.why_stale():
            raise Refused(f"stale: {reason}")
        variables = dict(one.split(b"=", 1) for one in job.environment if b"=" in one)
        if reason := self.imported.why_not_for(variables):
            raise Refused(reason)
        kind = runs.kind(job.words)
        if kind == "command":
            self._check_text(job.words[1], "the command")
        folders = self._check_file(os.fsdecode(job.words[0])) if kind == "file" else ["."]
        for folder in folders:
            if entry := self.imported.shadowed(folder):
                raise Refused(f"{entry} in {folder} hides a module that is imported here")

    def _check_file(self, path: str) -> list[str]:
        """The folders that python puts in front of those of modules."""
        if os.path.isdir(path):
            path = os.path.join(path, "__main__.py")
        else:
            with contextlib.suppress(zipimport.ZipImportError):
                zipimport.zipimporter(path)
                raise Refused(f"{path} is an archive")
        with contextlib.suppress(OSError):
            if os.path.isfile(path):
                with open(path, "rb") as file:
                    self._check_text(file.read(), path)
        return list(dict.fromkeys([os.path.dirname(path) or ".", os.path.dirname(_target(path))]))

    def _check_text(self, text: bytes, name: str) -> None:
        if (found := _MOVES_MODULES.search(text)) is not None:
            raise Refused(f"{name} changes where modules are found: {os.fsdecode(found[0])}")
        if _SETS_VARIABLES.search(text) and (found := self._keyed.search(text)) is not None:
            raise Refused(f"{name} mentions {os.fsdecode(found[0])}, which is read at import")


def _target(path: str) -> str:
    """Where a script is, if its path is a link."""
    with contextlib.suppress(OSError):
        return os.path.normpath(os.path.join(os.path.dirname(path), os.readlink(path)))
    return path or "."


def become(
    job: runs.Job, files: list[int], config: MainConfig, streams: list[tuple[str, str]]
) -> None:
    """Be the job's process from here on; the working directory is there already."""
    _take_files(job, files)
    os.umask(job.umask)
    _take_environment(job.environment)
    _take_signals(job)
    _renew_streams(streams)
    _renew_modules()
    _take_words(job, config)
    _renew_main()
    _end_quickly()
    signal.pthread_sigmask(
        signal.SIG_SETMASK, {n for n in range(1, signal.NSIG) if job.blocked >> (n - 1) & 1}
    )


def _take_files(job: runs.Job, files: list[int]) -> None:
    """Each file under its number, and no other."""
    above = max([2, *job.descriptors, *files]) + 1
    moved = [_moved_above(file, above) for file in files]
    os.closerange(0, above)
    for number, file in zip(job.descriptors, moved, strict=True):
        os.dup2(file, number, inheritable=True)
    runs.close_above(above - 1)


def _moved_above(file: int, above: int) -> int:
    import fcntl

    return fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, above)


def _take_environment(entries: list[bytes]) -> None:
    os.environ.clear()
    for entry in entries:
        name, found, value = entry.partition(b"=")
        if found and name:
            os.environb[name] = value
    time.tzset()


def take_group(job: runs.Job) -> None:
    """With a terminal, the launcher's process group: the terminal's signals reach both.
    Raises OSError."""
    if job.group:
        os.setpgid(0, job.group)
    elif job.leader:
        os.setsid()
    else:
        os.setpgid(0, 0)


def _take_signals(job: runs.Job) -> None:
    """As Python finds them at its start: ignored ones stay so, SIGINT raises KeyboardInterrupt."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in signal.valid_signals():
        ignored = bool(job.ignored >> (number - 1) & 1)
        if number in _IGNORED_BY_PYTHON:
            continue
        if ignored and signal.getsignal(number) != signal.SIG_IGN:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_IGN)


def _renew_streams(streams: list[tuple[str, str]]) -> None:
    """The standard streams as the interpreter makes them for these files. The objects stay the
    same, since modules have kept them."""
    names = ("stdin", "stdout", "stderr")
    for number, (name, (encoding, errors)) in enumerate(zip(names, streams, strict=True)):
        try:
            os.fstat(number)
        except OSError:
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
            continue
        _renew_stream(getattr(sys, f"__{name}__"), number, encoding, errors)


def _renew_stream(text: Any, number: int, encoding: str, errors: str) -> None:
    """As ``create_stdio`` in CPython's pylifecycle.c."""
    unbuffered: bool = text.write_through
    writes = number > 0
    binary: Any = open(  # noqa: SIM115
        number, "wb" if writes else "rb", 0 if unbuffered and writes else -1, closefd=False
    )
    raw = binary if unbuffered and writes else binary.raw
    raw.name = f"<{('stdin', 'stdout', 'stderr')[number]}>"
    text.__init__(
        binary, encoding, errors, newline="\n",
        line_buffering=not unbuffered and (number == 2 or raw.isatty()), write_through=unbuffered,
    )  # fmt: skip


def _renew_modules() -> None:
    """What modules took from the process that imported them."""
    importlib.invalidate_caches()
    logging: Any = sys.modules.get("logging")
    if logging is not None:
        logging._startTime = time.time_ns() if sys.version_info >= (3, 13) else time.time()
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = os.path.abspath(os.getcwd()) if _has_folder() else None
        key = process.AuthenticationString(os.urandom(32))
        process.current_process()._config["authkey"] = key
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()  # `random` seeds itself after a fork
    threading: Any = sys.modules.get("threading")
    if threading is not None and hasattr(threading.main_thread(), "_set_native_id"):
        threading.main_thread()._set_native_id()


def _renew_main() -> None:
    """A main module that the collector looks after: what the zygote made, it passes over
    (``gc.freeze``), and at the end it would not free what the program leaves there."""
    old = sys.modules["__main__"]
    main = ModuleType("__main__")
    for name, value in vars(old).items():
        setattr(main, name, {} if name == "__annotations__" else value)
    sys.modules["__main__"] = main


def _end_quickly() -> None:
    """At the end, leave out the destructors of the libraries that the zygote has loaded: they would
    free a copy, page by page, of what the zygote keeps. All that is registered from here on runs
    before: the program's libraries', and those of a library that began its work here, as CUDA's.
    Python's own end is Python's."""
    library = ctypes.CDLL(None)
    if library.on_exit(library._exit, None) == 0:
        library.__cxa_atexit(library.fflush, None, None)  # which runs first


def _has_folder() -> bool:
    try:
        os.getcwd()
    except OSError:
        return False
    return True


def _take_words(job: runs.Job, config: MainConfig) -> None:
    """The command line, for ``sys``, for the main program, and for the kernel."""
    words, kind = job.words, runs.kind(job.words)
    command = module = file = b""
    if kind == "command":
        command, argv = words[1] + b"\n", [b"-c", *words[2:]]
    elif kind == "module":
        module, argv = words[1], [b"-m", *words[2:]]
    elif kind == "file":
        argv, file = words, words[0]
        if not os.path.isabs(file) and _has_folder():
            file = os.path.join(os.getcwdb(), file)
    else:
        argv = words or [b""]
    config.set(command, module, file, argv)
    sys.argv[:] = [os.fsdecode(word) for word in argv]
    sys.orig_argv[:] = [os.fsdecode(word) for word in (job.python, *words)]
    process_title.put([job.python, *words], job.environment)
