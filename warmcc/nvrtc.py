"""NVRTC, NVIDIA's compiler as a library: one text of CUDA in, one cubin (or PTX) out.

Called through ctypes, so that nothing needs to be installed beside the library that torch brings.
Stand-alone (standard library only): the daemon's compile worker runs this file by its path, and the
client imports it where no daemon compiles.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Sequence

_PROGRAM = ctypes.c_void_p
_COMPILATION = 6  # nvrtcResult: the text does not compile


class NvrtcError(Exception):
    """The library cannot be loaded, or failed by itself: not the text's fault."""


class DoesNotCompile(Exception):
    """The text does not compile; ``str()`` is the compiler's log."""


class Nvrtc:
    """One loaded library. Raises NvrtcError."""

    def __init__(self, path: str) -> None:
        try:
            # The library looks for its builtins by name, and not beside itself.
            folder = os.path.dirname(path)
            for name in _names(folder, "libnvrtc-builtins.so."):
                ctypes.CDLL(f"{folder}/{name}", mode=ctypes.RTLD_GLOBAL)
            self._library = ctypes.CDLL(path)
        except OSError as error:
            raise NvrtcError(f"{path} cannot be loaded: {error}") from error
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._check(self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)))
        self.path = path
        self.version = (major.value, minor.value)

    def compile(
        self, source: str, file: str, options: Sequence[str], names: Iterable[str]
    ) -> tuple[bytes, dict[str, str], str]:
        """Compile a text that messages call ``file``.
        The machine code (PTX where the options name a ``compute_`` architecture), the lowered name
        of each name expression, and the log (warnings). Raises DoesNotCompile, NvrtcError."""
        program = _PROGRAM()
        self._check(
            self._library.nvrtcCreateProgram(
                ctypes.byref(program), source.encode(), file.encode(), 0, None, None
            )
        )
        try:
            wanted = list(names)
            for name in wanted:
                self._check(self._library.nvrtcAddNameExpression(program, name.encode()))
            words = [option.encode() for option in options]
            array = (ctypes.c_char_p * len(words))(*words)
            code = self._library.nvrtcCompileProgram(program, len(words), array)
            log = self._text(program, "ProgramLog")
            if code == _COMPILATION or (code and log):
                raise DoesNotCompile(log or self._said(code))
            self._check(code)
            lowered = {name: self._lowered(program, name) for name in wanted}
            is_ptx = any(word.startswith("--gpu-architecture=compute_") for word in options)
            return self._bytes(program, "PTX" if is_ptx else "CUBIN"), lowered, log
        finally:
            self._library.nvrtcDestroyProgram(ctypes.byref(program))

    def _lowered(self, program: ctypes.c_void_p, name: str) -> str:
        found = ctypes.c_char_p()
        self._check(self._library.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(found)))
        return (found.value or b"").decode()

    def _bytes(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self._check(getattr(self._library, f"nvrtcGet{what}Size")(program, ctypes.byref(size)))
        buffer = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, f"nvrtcGet{what}")(program, buffer))
        return buffer.raw

    def _text(self, program: ctypes.c_void_p, what: str) -> str:
        return self._bytes(program, what).rstrip(b"\0").decode("utf-8", "replace").strip()

    def _said(self, code: int) -> str:
        describe = self._library.nvrtcGetErrorString
        describe.restype = ctypes.c_char_p
        return (describe(code) or b"").decode()

    def _check(self, code: int) -> None:
        if code:
            raise NvrtcError(f"NVRTC failed: {self._said(code)}")


def library(torch_dir: str, environment: dict[str, str]) -> str | None:
    """The libnvrtc to use: that of torch's wheels, else the toolkit's; None where there is none.

    ``torch_dir`` is the folder of the torch package.
    """
    packages = os.path.dirname(torch_dir)
    homes = [environment.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    wheels = [f"{packages}/nvidia/{name}/lib" for name in _names(f"{packages}/nvidia", "cu")]
    places = [
        *wheels, f"{torch_dir}/lib",
        *(f"{home}/lib64" for home in homes if home), "/usr/local/cuda/lib64",
        "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
    ]  # fmt: skip
    for place in places:
        found = [
            name for name in _names(place, "libnvrtc")
            if ".so." in name and "builtins" not in name and ".alt." not in name
        ]  # fmt: skip
        if found:
            return f"{place}/{min(found, key=len)}"
    return None


def _names(folder: str, start: str) -> list[str]:
    """What a folder has of such names; ``glob`` costs a millisecond in a new process."""
    try:
        return sorted(name for name in os.listdir(folder) if name.startswith(start))
    except OSError:
        return []


def toolkit_folders(library: str, environment: dict[str, str]) -> list[str]:
    """The folders with CUDA's own headers (``cuda_fp16.h``, CUB, libcu++): those beside the
    library, then the toolkit's, which have what the wheels of torch lack."""
    lib = os.path.dirname(library)
    above, packages = os.path.dirname(lib), os.path.dirname(os.path.dirname(lib))
    homes = [environment.get(name, "") for name in ("CUDA_HOME", "CUDA_PATH")]
    places = [
        f"{above}/include", f"{above}/include/cccl", f"{packages}/cuda_runtime/include",
        f"{packages}/cuda_cccl/include", f"{packages}/cuda_cccl/include/cccl",
    ]  # fmt: skip
    for home in (*filter(None, homes), "/usr/local/cuda"):
        places += [f"{home}/include", f"{home}/include/cccl"]
    known = ("cuda_fp16.h", "cub/cub.cuh", "cuda/std/type_traits")
    real = [os.path.realpath(place) for place in places]
    return [
        place for place in dict.fromkeys(real)
        if any(os.path.exists(os.path.join(place, name)) for name in known)
    ]  # fmt: skip
