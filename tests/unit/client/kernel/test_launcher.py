"""The launcher's memory, as the driver's own header lays it out.

There is no driver without a GPU: a C function with the driver's signature takes its place, and
copies what it is given. Tensors are on the host, and so is the "device" (-1).
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from warmcc import nvrtc
from warmcc.client.kernel import driver, launcher, signature
from warmcc.client.kernel.arguments import Arguments
from warmcc.client.kernel.launch_words import dims
from warmcc.client.kernel.signature import SignatureError

RECORDER = """
#include <cuda.h>
#include <string.h>
__thread unsigned long long seen[16]; __thread unsigned char values[8][64];
int answer = 0; int calls = 0;
int launch(const CUlaunchConfig* c, CUfunction f, void** parameters, void** extra) {
  unsigned long long found[] = {c->gridDimX, c->gridDimY, c->gridDimZ, c->blockDimX, c->blockDimY,
      c->blockDimZ, c->sharedMemBytes, (unsigned long long)c->hStream, c->numAttrs,
      (unsigned long long)f, (unsigned long long)extra};
  memcpy(seen, found, sizeof found);
  for (int i = 0; i < COUNT; ++i) memcpy(values[i], parameters[i], 8);
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
DECLARED = "void f(const float* x, int n, double d, bool b, short s, __nv_bfloat16 h)"


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder = tmp_path_factory.mktemp("recorder")
    found = nvrtc.library(os.path.dirname(torch.__file__), dict(os.environ))
    headers = [] if found is None else nvrtc.toolkit_folders(found, dict(os.environ))
    if not any(os.path.exists(f"{path}/cuda.h") for path in headers):
        pytest.skip("needs cuda.h")
    Path(folder, "r.c").write_text(RECORDER)
    subprocess.run(
        ["cc", "-shared", "-fPIC", "-DCOUNT=6", *(f"-I{path}" for path in headers), "r.c", "-o",
         "r.so"], cwd=folder, check=True,
    )  # fmt: skip
    one = ctypes.CDLL(str(folder / "r.so"))
    one.seen_at.restype = ctypes.c_uint64
    one.value_at.restype = ctypes.c_void_p
    return one


def make(library: ctypes.CDLL, failed: Callable[..., None]) -> launcher.Launch:
    bound = signature.declared(DECLARED).bound({})
    handle = launcher.Handle(ctypes.c_void_p(0x1234), library.launch, failed)
    sizes = launcher.sized(bound, [8, 4, 8, 1, 2, 2])
    return launcher.make(bound, sizes, Arguments(bound, -1, frozenset()), handle, -1, frozenset())


def never(*_args: int, **_more: bool) -> None:
    raise AssertionError


def value(library: ctypes.CDLL, index: int, kind: Any) -> Any:
    return kind.from_address(library.value_at(index)).value


def test_all_arrives_where_the_driver_reads_it(library: ctypes.CDLL) -> None:
    x = torch.zeros(8)
    make(library, never)((x, -5, 2.5, True, 7, 1.0), 1, 2, 3, 4, 5, 6, 1000, 0xABCDEF0123, 0, 0)
    assert [library.seen_at(i) for i in range(11)] == [
        1, 2, 3, 4, 5, 6, 1000, 0xABCDEF0123, 0, 0x1234, 0,
    ]  # fmt: skip
    kinds = (ctypes.c_uint64, ctypes.c_int32, ctypes.c_double, ctypes.c_bool, ctypes.c_int16)
    found = [value(library, index, kind) for index, kind in enumerate(kinds)]
    assert found == [x.data_ptr(), -5, 2.5, True, 7]
    assert value(library, 5, ctypes.c_uint16) == 0x3F80


def test_attributes_have_the_drivers_layout(library: ctypes.CDLL) -> None:
    buffer = driver.launch_attributes((1, 2, 1), True)
    assert len(buffer) == 2 * driver.ATTRIBUTE_SIZE
    arguments = (torch.zeros(8), 1, 1.0, True, 1, 1.0)
    make(library, never)(arguments, 1, 1, 1, 1, 1, 1, 0, 0, ctypes.addressof(buffer), 2)
    assert [library.seen_at(i) for i in (8, 11, 12, 13, 14)] == [2, 4, 2, 2, 1]


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ((1, 2), TypeError, "takes 6 arguments .* and 2 were given"),
        ((torch.zeros(8, dtype=torch.int32), 1, 1.0, True, 1, 1.0), TypeError, "float32 is expec"),
        ((torch.zeros(4, 4).t(), 1, 1.0, True, 1, 1.0), ValueError, "not contiguous"),
        ((torch.zeros(8), 1 << 31, 1.0, True, 1, 1.0), OverflowError,
         "argument 2 of 6, `int n`: 2147483648 does not fit"),
        ((torch.zeros(8), 1.0, 1.0, True, 1, 1.0), TypeError, "a whole number is expected"),
        ((torch.zeros(8), 1, "2", True, 1, 1.0), TypeError, "a number is expected"),
        ((torch.zeros(8), 1, 1.0, True, -40000, 1.0), OverflowError, "`short s`: -40000 does not"),
    ],
)  # fmt: skip
def test_nothing_is_launched_with_wrong_arguments(
    library: ctypes.CDLL, arguments: tuple[Any, ...], error: type[Exception], said: str
) -> None:
    calls = ctypes.c_int.in_dll(library, "calls")
    before = calls.value
    with pytest.raises(error, match=said):
        make(library, never)(arguments, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    assert calls.value == before


def test_freed_memory_is_noticed_and_an_empty_grid_launches_nothing(library: ctypes.CDLL) -> None:
    launch, one = make(library, never), torch.zeros(8)
    calls = ctypes.c_int.in_dll(library, "calls")
    before = calls.value
    launch((one, 1, 1.0, True, 1, 1.0), 0, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    one.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="its memory was freed"):
        launch((one, 1, 1.0, True, 1, 1.0), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
    assert calls.value == before


def test_a_grid_out_of_range_is_said(library: ctypes.CDLL) -> None:
    arguments = (torch.zeros(8), 1, 1.0, True, 1, 1.0)
    with pytest.raises(OverflowError, match="the grid, block or shared memory is out of range"):
        make(library, never)(arguments, 1 << 32, 1, 1, 1, 1, 1, 0, 0, 0, 0)


def test_a_refused_launch_is_tried_once_more_then_told(library: ctypes.CDLL) -> None:
    heard: list[tuple[int, bool]] = []

    def failed(code: int, *_: int, last: bool = False) -> None:
        heard.append((code, last))
        if last:
            raise RuntimeError("told")

    answer = ctypes.c_int.in_dll(library, "answer")
    answer.value = 201
    try:
        with pytest.raises(RuntimeError, match="told"):
            make(library, failed)(
                (torch.zeros(8), 1, 1.0, True, 1, 1.0), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0
            )
    finally:
        answer.value = 0
    assert heard == [(201, False), (201, True)]


def test_threads_do_not_share_a_piece_of_memory(library: ctypes.CDLL) -> None:
    launch, x, wrong = make(library, never), torch.zeros(8), []

    def many(number: int) -> None:
        for round_ in range(300):
            launch((x, number * 1000 + round_, 1.0, True, 1, 1.0), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
            if value(library, 1, ctypes.c_int32) != number * 1000 + round_:
                wrong.append((number, round_))

    threads = [threading.Thread(target=many, args=(number,)) for number in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert wrong == []


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([8, 8, 8, 1, 2, 2], "`int n` has 8 bytes there; say what it takes with signature="),
        ([8, 4, 8, 1, 2], "5 parameters there"),
        ([8, 4, 8, 1, 2, 2, 4], "7 parameters there"),
    ],
)
def test_a_signature_that_was_misread_is_noticed(sizes: list[int], said: str) -> None:
    with pytest.raises(SignatureError, match=said):
        launcher.sized(signature.declared(DECLARED).bound({}), sizes)


def test_grids_and_blocks() -> None:
    assert [dims(one, "grid") for one in (5, (5,), (5, 6), [5, 6, 7])] == [
        (5, 1, 1), (5, 1, 1), (5, 6, 1), (5, 6, 7),
    ]  # fmt: skip
    for wrong in (None, "5", 1.5, (1, "2")):
        with pytest.raises(TypeError, match="grid"):
            dims(wrong, "grid")
    for out in (-1, (), (1, 2, 3, 4)):
        with pytest.raises(ValueError, match="grid"):
            dims(out, "grid")
