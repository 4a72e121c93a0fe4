"""The command line and the environment of this process, as ``ps`` and ``/proc`` show them.

Linux lets a process say where they are in its memory (``PR_SET_MM_MAP``, without any privilege).
A kernel that refuses leaves those of the zygote in sight.
"""

from __future__ import annotations

import ctypes

_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_ADDRESSES = (
    "start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack",
    "arg_start", "arg_end", "env_start", "env_end", "auxv",
)  # fmt: skip
# Their places in /proc/self/stat (proc(5)), counted from 1
_FIELDS = {
    "start_code": 26, "end_code": 27, "start_stack": 28, "start_data": 45, "end_data": 46,
    "start_brk": 47,
}  # fmt: skip


class _Map(ctypes.Structure):
    """``struct prctl_mm_map``."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in _ADDRESSES),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_int32),
    )


def put(words: list[bytes], environment: list[bytes]) -> bool:
    """Show these; whether the kernel does."""
    library = ctypes.CDLL(None, use_errno=True)
    library.sbrk.restype = ctypes.c_void_p
    library.sbrk.argtypes = [ctypes.c_ssize_t]
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return False
    known = {name: int(fields[place - 3]) for name, place in _FIELDS.items()}
    argv, variables = (b"".join(one + b"\0" for one in text) for text in (words, environment))
    library.malloc.restype = ctypes.c_void_p
    library.malloc.argtypes = [ctypes.c_size_t]
    start = library.malloc(len(argv) + len(variables) + 1)  # for as long as the process lives
    if not start:
        return False
    ctypes.memmove(start, argv + variables, len(argv) + len(variables))
    shown = _Map(
        **known, brk=library.sbrk(0), arg_start=start, arg_end=start + len(argv),
        env_start=start + len(argv), env_end=start + len(argv) + len(variables), auxv=0,
        auxv_size=0, exe_fd=-1,
    )  # fmt: skip
    size = ctypes.sizeof(shown)
    found: int = library.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(shown), size, 0)
    return found == 0
