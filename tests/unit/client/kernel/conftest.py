"""A C function with the signature of the driver's launch, which copies what it is given; and the
native launcher, compiled here."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from warmcc import nvrtc
from warmcc.client.kernel import launcher, native

RECORDER = """
#include <cuda.h>
#include <string.h>
__thread unsigned long long seen[16]; __thread unsigned char values[16][64];
int answer = 0; int calls = 0; int count = 6;
int launch(const CUlaunchConfig* c, CUfunction f, void** parameters, void** extra) {
  unsigned long long found[] = {c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
      c->blockDimZ, c->sharedMemBytes, (unsigned long long)c->hStream, c->numAttrs,
      (unsigned long long)f, (unsigned long long)extra};
  memcpy(seen, found, sizeof found);
  for (int i = 0; i < count; ++i) memcpy(values[i], parameters[i], 8);
  if (c->numAttrs) {
    seen[11] = c->attrs[0].id; seen[12] = c->attrs[0].value.clusterDim.y;
    seen[13] = c->attrs[1].id; seen[14] = c->attrs[1].value.cooperative;
  }
  ++calls;
  return answer;
}
unsigned long long seen_at(int i) { return seen[i]; }
void* value_at(int i) { return values[i]; }
"""


@pytest.fixture(autouse=True)
def low_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors are in the host's memory here, which may begin far below a GPU's."""
    for module in (launcher, native):
        monkeypatch.setattr(module, "LOWEST", 1 << 12)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("recorder")
    found = nvrtc.library(os.path.dirname(torch.__file__), dict(os.environ))
    headers = [] if found is None else nvrtc.toolkit_folders(found, dict(os.environ))
    if not any(os.path.exists(f"{path}/cuda.h") for path in headers):
        pytest.skip("needs cuda.h")
    Path(folder, "r.c").write_text(RECORDER)
    subprocess.run(
        ["cc", "-shared", "-fPIC", *(f"-I{path}" for path in headers), "r.c", "-o",
         "r.so"], cwd=folder, check=True,
    )  # fmt: skip
    one = ctypes.CDLL(str(folder / "r.so"))
    one.seen_at.restype = ctypes.c_uint64
    one.value_at.restype = ctypes.c_void_p
    return one


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The native launcher's module, without warnings of the compiler."""
    place = tmp_path_factory.mktemp("native") / "warmcc_launch.so"
    folders = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
    subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers", "-shared",
         "-fPIC", *(f"-I{folder}" for folder in folders), str(native.SOURCE), "-o", str(place)],
        check=True,
    )  # fmt: skip
    return native.loaded(str(place))


class Caller:
    """What the native launcher asks of a kernel and of torch, on the "device" -1."""

    def __init__(self, usual: launcher.Launch) -> None:
        self.usual = usual
        self.device, self.stream = -1, 0

    def _launch(self, args: tuple[Any, ...], grid: Any, block: Any, shared: Any) -> None:
        self.usual(args, grid, block, shared, self.stream, 0, 0)

    def says(self) -> tuple[Callable[[], int], Callable[[int], int]]:
        return lambda: self.device, lambda device: self.stream if device == -1 else -1


def as_usual(made: native.Native, caller: Caller) -> launcher.Launch:
    """A native launcher that is called as Python's."""

    def launch(
        args: tuple[Any, ...], grid: Any, block: Any, shared: Any, stream: int,
        attributes: int, count: int,
    ) -> None:  # fmt: skip
        if count:
            caller.usual(args, grid, block, shared, stream, attributes, count)
        else:
            caller.stream = stream
            made(caller, args, grid, block, shared)

    return launch
