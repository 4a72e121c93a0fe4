"""Run a command that can read and write only what it is given: Landlock's rules, set by a process for itself.

Stand-alone (standard library only): ``python -I -S confine.py RULES COMMAND …``, where RULES is JSON:
``{"read": [paths], "write": [paths]}``. It can neither connect to nor listen on TCP ports, nor signal processes
outside, as far as the kernel knows how to forbid that. Exit code 125 when the rules cannot be set; nothing is run then.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import stat
import struct
import sys

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls, the same on every architecture
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_KNOWN = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}  # file accesses by the ABI's version
_NO_NEW_PRIVILEGES = 38

_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """The version of Landlock's ABI; 0 when the kernel has none, or it is switched off."""
    return max(0, int(_libc.syscall(_CREATE, None, 0, 1)))


def restrict(read: list[str], write: list[str]) -> None:
    """Confine this process for good. Raises OSError."""
    abi = version()
    if abi == 0:
        raise OSError(0, "this kernel has no Landlock")
    handled = _KNOWN.get(abi, (1 << 16) - 1)
    attributes = struct.pack("=QQQ", handled, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    attributes = attributes[: 8 if abi < 4 else 16 if abi < 6 else 24]
    ruleset = _call(_CREATE, attributes, len(attributes), 0)
    for path in read:
        _allow(ruleset, path, (_EXECUTE | _READ_FILE | _READ_DIR) & handled)
    for path in write:
        _allow(ruleset, path, handled)
    if _libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    _call(_RESTRICT, ruleset, 0)
    os.close(ruleset)


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
    rules, command = json.loads(sys.argv[1]), sys.argv[2:]
    try:
        restrict(rules["read"], rules["write"])
    except OSError as error:
        print(f"the sandbox cannot be set up: {error}", file=sys.stderr)
        sys.exit(125)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
