"""Run a command that can read and write only what it is given.
Landlock's rules and a filter of system calls (seccomp), set by a process for itself and for all
that it starts.

It can open no socket, so that it reaches neither the network nor a daemon, and it can neither
signal nor trace processes outside, as far as the kernel knows how to forbid that.

Here the rules are made (``rules``). What sets them is ``native/confine.c``, where there is a C
compiler, as it takes a millisecond, or else this, which takes thirty: stand-alone (standard library
only), ``python -I -S landlock.py RULES COMMAND …``. Exit code 125 when the rules cannot be set;
nothing is run then.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import platform
import stat
import struct
import sys

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = (
    1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15,
)  # fmt: skip
_MAKE_DEVICE_OR_SOCKET = 1 << 6 | 1 << 9 | 1 << 11
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
# File accesses by the ABI's version
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_NO_NEW_PRIVILEGES = 38
READ = _EXECUTE | _READ_FILE | _READ_DIR

# What no compiler needs, by number on x86_64 and aarch64 (None: not there). Sockets: Landlock says
# nothing of those with a path, nor of UDP. The rest are ways past the rules, or into other
# processes, for who is root or finds a fault.
_DENIED: dict[str, tuple[int | None, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_getfd": (438, 438), "kcmp": (312, 272), "io_uring_setup": (425, 425), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217),
    "request_key": (249, 218), "keyctl": (250, 219), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "move_mount": (429, 429), "open_tree": (428, 428), "fsopen": (430, 430),
    "mount_setattr": (442, 442), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "init_module": (175, 105), "finit_module": (313, 273), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "swapon": (167, 224), "iopl": (172, None),
    "ioperm": (173, None),
}  # fmt: skip
# The column above, and the architecture's number
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_X32 = 0x40000000  # the numbers of x86_64's other set of system calls begin here
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _IS_AVAILABLE, _WITH_SPECULATION = 1, 2, 4  # compilers are not slower with it
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000

_libc = ctypes.CDLL(None, use_errno=True)


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))


def version() -> int:
    """The version of Landlock's ABI; 0 when the kernel has none, or it is switched off."""
    return max(0, int(_libc.syscall(_CREATE, None, 0, 1)))


def has_filters() -> bool:
    """Whether system calls can be filtered here."""
    number = _SECCOMP.get(platform.machine())
    return (
        number is not None
        and _libc.syscall(number, _IS_AVAILABLE, 0, struct.pack("=I", _ERROR)) == 0
    )


def attributes() -> tuple[int, int, int, int]:
    """The attributes of a set of rules: their size, accesses to files and ports, and scopes."""
    abi = version()
    return 8 if abi < 4 else 16 if abi < 6 else 24, _KNOWN.get(abi, (1 << 16) - 1), 3, 3


def writing() -> int:
    """What may be done below a folder that may be written."""
    return attributes()[1] & ~_MAKE_DEVICE_OR_SOCKET


def rules(
    read: list[str], write: list[str], environment: dict[str, str] | None = None, *,
    calls: bool = True,
) -> str:  # fmt: skip
    """The text that says what a process may do (``native/confine.h``).
    ``calls``: with the filter of system calls. Raises OSError when a name has a newline in it,
    which would begin another rule."""
    lines = [" ".join(map(str, (*attributes(), READ, writing())))]
    lines += [f"r {path}" for path in read]
    lines += [f"w {path}" for path in write]
    lines += [f"e {name}={value}" for name, value in (environment or {}).items()]
    if wrong := next((line for line in lines if "\n" in line), None):
        raise OSError(errno.EINVAL, f"a newline in the sandbox's rules: {wrong!r}")
    lines += ["f {} {} {} {}".format(*line) for line in _filter()] if calls else []
    return "\n".join(lines)


def _filter() -> list[tuple[int, int, int, int]]:
    """The seccomp program: the system calls above fail with EPERM, as do foreign ones.
    Foreign are those of another architecture. Raises OSError."""
    if not has_filters():
        raise OSError(errno.ENOSYS, "system calls cannot be filtered here (seccomp)")
    column, architecture = _MACHINES[platform.machine()]
    numbers = [found[column] for found in _DENIED.values()]
    checks = [(0x15, number) for number in numbers if number is not None]  # equal
    if column == 0:
        checks.append((0x35, _X32))  # greater or equal
    # Load the architecture, and go on when it is this one; load the number, and go to the last line
    # when one fits.
    lines = [(0x20, 0, 0, 4), (0x15, 0, len(checks) + 2, architecture), (0x20, 0, 0, 0)]
    lines += [(code, len(checks) - place, 0, value) for place, (code, value) in enumerate(checks)]
    return [*lines, (0x06, 0, 0, _ALLOW), (0x06, 0, 0, _ERROR | errno.EPERM)]


def restrict(text: str) -> None:
    """Have rules confine this process for good, on top of what holds for it already.
    Raises OSError."""
    if version() == 0:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock")
    numbers, *lines = text.split("\n")
    size, *handled = map(int, numbers.split())
    ruleset = _call(_CREATE, struct.pack("=QQQ", *handled[:3]), size, 0)
    program = b""
    for line in lines:
        kind, value = line[0], line[2:]
        if kind in "rw":
            _allow(ruleset, value, handled[3 if kind == "r" else 4])
        elif kind == "e":
            name, _, value = value.partition("=")
            os.environ[name] = value
        elif kind == "f":
            program += struct.pack("=HBBI", *map(int, value.split()))
        else:
            raise OSError(errno.EINVAL, f"an unknown rule {line!r}")
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    _call(_RESTRICT, ruleset, 0)
    os.close(ruleset)
    if program:
        filtered = _Program(len(program) // 8, program)
        if (
            _libc.syscall(
                _SECCOMP[platform.machine()], _SET_FILTER, _WITH_SPECULATION, ctypes.byref(filtered)
            )
            != 0
        ):
            raise OSError(ctypes.get_errno(), "seccomp")


def _allow(ruleset: int, path: str, access: int) -> None:
    """A path that does not exist needs no rule."""
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= _OF_FILES
        _call(_ADD, ruleset, 1, struct.pack("=Qi", access, descriptor), 0)
        os.close(descriptor)


def _call(number: int, *arguments: int | bytes) -> int:
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result


def main() -> None:
    command = sys.argv[2:]
    try:
        restrict(sys.argv[1])
    except OSError as error:
        print(f"the sandbox cannot be set up: {error}", file=sys.stderr)
        sys.exit(125)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"{command[0]}: {error.strerror}", file=sys.stderr)
        sys.exit(127)


if __name__ == "__main__":
    main()
