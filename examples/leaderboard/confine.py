"""A process that sees one submission and nothing else of the machine, and leaves nothing behind.

Three processes are started for each submission::

    supervisor   outside: watches memory and processes, ends everything when the evaluator says so
    first        process 1 of a namespace; when it ends, the kernel ends everything in it
    worker       the submission

They have a separate root, in memory: the system's folders, this Python and the submission's bundle,
all read-only, and an empty ``/tmp`` of a limited size. There is no network, no other process to be
seen, and no way to get more rights. Root changes to a user without rights; any other user needs
user namespaces. All of this is the kernel's: no program is installed.
"""

from __future__ import annotations

import contextlib
import ctypes
import glob
import itertools
import json
import os
import platform
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import warmcc
import warmcc.client

_NEW_NS, _NEW_UTS, _NEW_IPC, _NEW_USER, _NEW_PID, _NEW_NET = (
    0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000,
)  # fmt: skip
_BIND, _REC, _PRIVATE = 4096, 16384, 1 << 18
_READ_ONLY, _NO_SUID, _NO_DEV = 1, 2, 4
_DETACH = 2
_PDEATHSIG, _DUMPABLE, _NO_NEW_PRIVILEGES = 1, 4, 38
_SETATTR, _RECURSIVE, _HERE = 442, 0x8000, -100
_PIVOT, _CAPSET = {"x86_64": (155, 126), "aarch64": (41, 91)}.get(platform.machine(), (-1, -1))
_SYSTEM = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/sbin",
    "/opt",
    "/etc/ld.so.cache",
    "/etc/alternatives",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPU = ("/dev/nvidia*", "/sys")  # for a GPU only
UID = 2_000_000_000  # the first number of users that have nothing on any machine
_EVERY = 20  # milliseconds between two looks at memory

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Limits:
    """What one submission may take: seconds in all, bytes of memory of all its processes,
    processes, these and threads together, bytes of ``/tmp``, bytes of output."""

    seconds: float = 10.0
    memory: int = 2 << 30
    processes: int = 16
    threads: int = 256
    disk: int = 64 << 20
    output: int = 1 << 20


@dataclass(frozen=True)
class Job:
    """``bundle`` is the folder that is shown as ``/bundle``, ``root`` an empty one to mount it."""

    bundle: str
    root: str
    uid: int
    gpu: bool
    limits: Limits


def supervise(job: Job, control: socket.socket, rest: list[int], work: Callable[[], None]) -> None:
    """Run ``work`` confined; then tell ``control`` how it ended. When the other side of ``control``
    is closed, everything ends. ``rest`` are descriptors for ``work`` only.
    Does not return. Call it in a process with one thread."""
    reason, status = "failed", -1
    try:
        os.setsid()
        own = _anonymous(os.getpid())
        if os.getuid() != 0:
            _enter_user_namespace()
        _checked(_libc.unshare(_NEW_PID), "a namespace for processes")
        with os.fdopen(os.dup(control.fileno()), "wb", buffering=0) as errors:
            first = os.fork()
            if first == 0:
                _first(job, control, errors.fileno(), work)
        for descriptor in rest:
            os.close(descriptor)
        reason = _watch(first, control, job.limits, own)
        with contextlib.suppress(ProcessLookupError):
            os.kill(first, signal.SIGKILL)
        # When process 1 can be waited for, all others of the namespace are gone
        status = os.waitstatus_to_exitcode(os.waitpid(first, 0)[1])
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    with contextlib.suppress(OSError):
        control.sendall(json.dumps({"reason": reason, "status": status}).encode() + b"\n")
    os._exit(0)


def _first(job: Job, control: socket.socket, errors: int, work: Callable[[], None]) -> None:
    """Process 1. Says on ``errors`` why it cannot begin; starts the worker, and ends with it."""
    status = 125
    try:
        _checked(_libc.prctl(_PDEATHSIG, signal.SIGKILL), "to end with its parent")
        _checked(
            _libc.unshare(_NEW_NS | _NEW_NET | _NEW_IPC | _NEW_UTS), "namespaces for files and more"
        )
        _change_root(job)
        _drop_rights(job)
        _checked(_libc.prctl(_PDEATHSIG, signal.SIGKILL), "to end with its parent")
        os.close(errors)
        control.close()
        worker = os.fork()
        if worker == 0:
            status = 1
            os.setsid()
            _set_limits(job)
            work()
            os._exit(0)
        os.closerange(0, 1024)
        while True:
            ended, how = os.wait()
            if ended == worker:
                code = os.waitstatus_to_exitcode(how)
                os._exit(code if code >= 0 else 128 - code)
    except BaseException as error:
        if status == 125:
            with contextlib.suppress(OSError):
                os.write(errors, json.dumps({"error": str(error)}).encode() + b"\n")
        elif status == 1:
            sys.excepthook(*sys.exc_info())
        os._exit(status)


def _watch(first: int, control: socket.socket, limits: Limits, own: int) -> str:
    """Wait for the end of process 1, and return why everything has to end; ``own`` are the bytes
    that each process has from the nursery."""
    poll, end = select.poll(), os.pidfd_open(first)
    poll.register(end, select.POLLIN)
    poll.register(control, select.POLLIN | select.POLLHUP)
    while True:
        for descriptor, _ in poll.poll(_EVERY):
            return "ended" if descriptor == end else "told"
        found = list(itertools.islice(_below(first), limits.processes + 2))
        if len(found) > limits.processes + 1:  # process 1 is not the submission's
            return "process limit"
        if sum(max(0, _anonymous(pid) - own) for pid in found) > limits.memory:
            return "memory limit"


def _below(pid: int) -> Iterator[int]:
    """A process and its descendants: those that lose their parent become children of process 1."""
    waiting = [pid]
    while waiting:
        one = waiting.pop()
        yield one
        for path in glob.glob(f"/proc/{one}/task/*/children"):
            with contextlib.suppress(OSError):
                waiting += map(int, Path(path).read_text().split())


def _anonymous(pid: int) -> int:
    """Bytes of memory that are no file's."""
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return sum(int(line.split()[1]) << 10 for line in lines
                   if line.startswith(("RssAnon", "RssShmem")))  # fmt: skip
    return 0


def _enter_user_namespace() -> None:
    uid, gid = os.getuid(), os.getgid()
    _checked(_libc.unshare(_NEW_USER), "a user namespace (as a user other than root)")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _change_root(job: Job) -> None:
    """Build the root that the submission sees, and go there. Raises OSError."""
    _mount(None, "/", None, _REC | _PRIVATE)
    _mount("none", job.root, "tmpfs", _NO_SUID | _NO_DEV, "size=1m,mode=755")
    os.makedirs(f"{job.root}/proc")
    _mount("proc", f"{job.root}/proc", "proc", _NO_SUID | _NO_DEV)
    os.makedirs(f"{job.root}/tmp")
    _mount("none", f"{job.root}/tmp", "tmpfs", _NO_SUID | _NO_DEV,
           f"size={job.limits.disk},nr_inodes=4096,mode=1777")  # fmt: skip
    packages = map(os.path.realpath, (*warmcc.__path__, *warmcc.client.__path__))
    for path in dict.fromkeys([*_SYSTEM, sys.prefix, sys.base_prefix, *packages]):
        _show(path, job.root + path)
    devices = [*_DEVICES, *(sorted(glob.glob(_GPU[0])) if job.gpu else [])]
    for path in devices:
        _show(path, job.root + path, read_only=False)
    if job.gpu:
        _show(_GPU[1], job.root + _GPU[1])
    _show(job.bundle, f"{job.root}/bundle")
    _read_only(job.root, recursive=False)
    os.chdir(job.root)
    _checked(_libc.syscall(_PIVOT, b".", b"."), "another root")
    _checked(_libc.umount2(b".", _DETACH), "another root")
    os.chdir("/tmp")


def _show(path: str, to: str, *, read_only: bool = True) -> None:
    """Show a file or folder of the machine in the new root; what is not there is left out."""
    if os.path.islink(path):
        os.makedirs(os.path.dirname(to), exist_ok=True)
        os.symlink(os.readlink(path), to)
    elif os.path.isdir(path):
        os.makedirs(to, exist_ok=True)
    elif os.path.exists(path):
        os.makedirs(os.path.dirname(to), exist_ok=True)
        Path(to).touch()
    if not os.path.islink(path) and os.path.exists(path):
        _mount(path, to, None, _BIND | _REC)
        if read_only:
            _read_only(to)


def _read_only(path: str, *, recursive: bool = True) -> None:
    attributes = struct.pack("=QQQQ", _READ_ONLY | _NO_SUID | _NO_DEV, 0, 0, 0)
    how = _RECURSIVE if recursive else 0
    done = _libc.syscall(_SETATTR, _HERE, os.fsencode(path), how, attributes, len(attributes))
    _checked(done, f"{path} read-only")


def _drop_rights(job: Job) -> None:
    _checked(_libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0), "no new privileges")
    if os.getuid() == 0:
        os.setgroups([])
        os.setresgid(job.uid, job.uid, job.uid)
        os.setresuid(job.uid, job.uid, job.uid)
    header, none = struct.pack("=Ii", 0x20080522, 0), bytes(24)
    _checked(_libc.syscall(_CAPSET, header, none), "no capabilities")
    # The worker is the same user, and must not trace process 1
    _checked(_libc.prctl(_DUMPABLE, 0, 0, 0, 0), "to be closed to others")


def _set_limits(job: Job) -> None:
    limits = job.limits
    seconds = int(limits.seconds) + 1
    for what, value in (
        (resource.RLIMIT_CORE, 1),  # 0 would start the program that core_pattern may name
        (resource.RLIMIT_CPU, seconds * (os.cpu_count() or 1)),
        (resource.RLIMIT_DATA, limits.memory),
        (resource.RLIMIT_FSIZE, limits.disk),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NOFILE, 256),
        (resource.RLIMIT_NPROC, limits.threads),
    ):
        resource.setrlimit(what, (value, value))


def _mount(
    what: str | None, where: str, kind: str | None, flags: int, data: str | None = None
) -> None:
    words = [None if one is None else os.fsencode(one) for one in (what, where, kind)]
    done = _libc.mount(*words, ctypes.c_ulong(flags), None if data is None else data.encode())
    _checked(done, f"to mount {where}")


def _checked(done: int, what: str) -> None:
    """Raises OSError."""
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"this machine does not allow {what}: {os.strerror(number)}")
