"""CUDA's driver (libcuda), called through ctypes: load a cubin, launch a kernel.

Code is loaded as a *library*, which every context of the process can use (driver 12.0 or later).
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Callable
from typing import Any

from warmcc.errors import WarmccError

# CUfunction_attribute
MAX_THREADS, SHARED, CONST, LOCAL, REGISTERS, PTX, BINARY = 0, 1, 2, 3, 4, 5, 6
MAX_DYNAMIC_SHARED, NON_PORTABLE_CLUSTER = 8, 14
ATTRIBUTES = {
    "registers": REGISTERS, "shared": SHARED, "local": LOCAL, "const": CONST,
    "max_threads": MAX_THREADS, "architecture": BINARY,
}  # fmt: skip
_CLUSTER, _COOPERATIVE = 4, 2  # CUlaunchAttributeID
_NO_CONTEXT = (201, 709)  # CUDA_ERROR_INVALID_CONTEXT, CONTEXT_IS_DESTROYED
_OLDEST = 12000


class LaunchError(WarmccError):
    """The driver refused to load or launch a kernel."""


class Driver:
    """libcuda. Raises LaunchError where there is none, or it is too old."""

    def __init__(self) -> None:
        try:
            self.cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise LaunchError(f"there is no CUDA driver on this machine ({error})") from error
        version = ctypes.c_int()
        self.check(self.cuda.cuInit(0), "start CUDA")
        self.check(self.cuda.cuDriverGetVersion(ctypes.byref(version)), "ask for its version")
        self.version = version.value
        if self.version < _OLDEST:
            found = f"{self.version // 1000}.{self.version % 1000 // 10}"
            raise LaunchError(f"warmcc.kernel needs a driver for CUDA 12.0 or later, not {found}")

    def said(self, code: int) -> str:
        """The name and the text of an error."""
        name, text = ctypes.c_char_p(), ctypes.c_char_p()
        self.cuda.cuGetErrorName(code, ctypes.byref(name))
        self.cuda.cuGetErrorString(code, ctypes.byref(text))
        return f"{(name.value or b'?').decode()}: {(text.value or str(code).encode()).decode()}"

    def check(self, code: int, doing: str) -> None:
        if code:
            raise LaunchError(f"the CUDA driver could not {doing}: {self.said(code)}")

    def load(self, image: bytes, name: str, lowered: str) -> ctypes.c_void_p:
        """The handle of a kernel in a cubin or PTX. Raises LaunchError."""
        library, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        data = ctypes.create_string_buffer(image, len(image) + 1)
        nothing = (None, None, 0)
        self.check(
            self.cuda.cuLibraryLoadData(ctypes.byref(library), data, *nothing, *nothing),
            f"load {name}",
        )
        self.check(
            self.cuda.cuLibraryGetKernel(ctypes.byref(kernel), library, lowered.encode()),
            f"find {name} in what was compiled",
        )
        return kernel

    def attribute(self, kernel: ctypes.c_void_p, which: int, device: int) -> int:
        """One of CUfunction_attribute."""
        value = ctypes.c_int()
        code = self.cuda.cuKernelGetAttribute(ctypes.byref(value), which, kernel, device)
        self.check(code, "ask for an attribute of a kernel")
        return value.value

    def allow(self, kernel: ctypes.c_void_p, which: int, value: int, device: int) -> None:
        """Set one of CUfunction_attribute. Raises LaunchError."""
        code = self.cuda.cuKernelSetAttribute(which, value, kernel, device)
        self.check(code, f"allow {value} bytes of shared memory or such a cluster")

    def sizes(self, kernel: ctypes.c_void_p) -> list[int] | None:
        """The bytes of each parameter, as the compiler laid them out; None where the driver does
        not tell (before 12.4)."""
        ask = getattr(self.cuda, "cuKernelGetParamInfo", None)
        if ask is None:
            return None
        found: list[int] = []
        offset, size = ctypes.c_size_t(), ctypes.c_size_t()
        while (
            ask(kernel, ctypes.c_size_t(len(found)), ctypes.byref(offset), ctypes.byref(size)) == 0
        ):
            found.append(size.value)
        return found

    def blocks_per_processor(self, kernel: ctypes.c_void_p, threads: int, shared: int) -> int:
        """How many blocks of a kernel one multiprocessor holds at a time."""
        count = ctypes.c_int()
        ask = self.cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor
        code = ask(ctypes.byref(count), kernel, threads, ctypes.c_size_t(shared))
        self.check(code, "ask for the occupancy of a kernel")
        return count.value

    def enter(self, device: int) -> None:
        """Make the device's primary context, which torch uses, the one of this thread."""
        number, context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.cuda.cuDeviceGet(ctypes.byref(number), device), "find the device")
        retain = self.cuda.cuDevicePrimaryCtxRetain
        self.check(retain(ctypes.byref(context), number), "enter the device")
        self.check(self.cuda.cuCtxSetCurrent(context), "enter the device")

    def launches(self) -> Callable[..., int]:
        """cuLaunchKernelEx; its arguments are ctypes objects."""
        found: Callable[..., int] = self.cuda.cuLaunchKernelEx
        return found

    @staticmethod
    def has_no_context(code: int) -> bool:
        return code in _NO_CONTEXT


@functools.cache
def driver() -> Driver:
    """The driver of this machine. Raises LaunchError."""
    return Driver()


def launch_attributes(cluster: tuple[int, int, int] | None, cooperative: bool) -> Any:
    """An array of CUlaunchAttribute, as a buffer that must stay alive, or None for none."""
    found = b""
    if cluster is not None:
        found += struct.pack("=I4x3I52x", _CLUSTER, *cluster)
    if cooperative:
        found += struct.pack("=I4xI60x", _COOPERATIVE, 1)
    return ctypes.create_string_buffer(found, len(found)) if found else None


ATTRIBUTE_SIZE = 72
