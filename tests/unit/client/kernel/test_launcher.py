"""The launcher's memory, as the driver's own header lays it out.

There is no driver without a GPU: a C function with the driver's signature takes its place, and
copies what it is given. Tensors are on the host, and so is the "device" (-1).
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.unit.client.kernel.conftest import Caller, as_usual
from warmcc.client.kernel import driver, launcher, native, signature
from warmcc.client.kernel.arguments import Arguments
from warmcc.client.kernel.launch_words import dims
from warmcc.client.kernel.signature import SignatureError

NONE = frozenset[str]()
DECLARED = "void f(const float* x, int n, double d, bool b, short s, __nv_bfloat16 h)"


Make = Callable[..., launcher.Launch]


@pytest.fixture(params=["python", "native"])
def make(library: ctypes.CDLL, compiled: Any, request: pytest.FixtureRequest) -> Make:
    """Makes a launcher of either kind; usual calls of the native one do not come to Python's."""

    def made(
        failed: Callable[..., None], declared: str = DECLARED, strided: frozenset[str] = NONE
    ) -> launcher.Launch:
        bound = signature.declared(declared).bound({})
        handle = launcher.Handle(ctypes.c_void_p(0x1234), library.launch, failed)
        sizes = launcher.sized(bound, None)
        checks = Arguments(bound, -1, strided)
        usual = launcher.make(bound, sizes, checks, handle, -1, strided)
        if request.param == "python":
            return usual
        caller = Caller(usual)
        found = native.make(compiled, bound, sizes, handle, -1, strided, caller.says())
        assert found is not None
        return as_usual(found, caller)

    return made


def never(*_args: int, **_more: bool) -> None:
    raise AssertionError


def value(library: ctypes.CDLL, index: int, kind: Any) -> Any:
    return kind.from_address(library.value_at(index)).value


def test_all_arrives_where_the_driver_reads_it(library: ctypes.CDLL, make: Make) -> None:
    x = torch.zeros(8)
    make(never)((x, -5, 2.5, True, 7, 1.0), (1, 2, 3), (4, 5, 6), 1000, 0xABCDEF0123, 0, 0)
    assert [library.seen_at(i) for i in range(11)] == [
        1, 2, 3, 4, 5, 6, 1000, 0xABCDEF0123, 0, 0x1234, 0,
    ]  # fmt: skip
    kinds = (ctypes.c_uint64, ctypes.c_int32, ctypes.c_double, ctypes.c_bool, ctypes.c_int16)
    found = [value(library, index, kind) for index, kind in enumerate(kinds)]
    assert found == [x.data_ptr(), -5, 2.5, True, 7]
    assert value(library, 5, ctypes.c_uint16) == 0x3F80


def test_attributes_have_the_drivers_layout(library: ctypes.CDLL, make: Make) -> None:
    buffer = driver.launch_attributes((1, 2, 1), True)
    assert len(buffer) == 2 * driver.ATTRIBUTE_SIZE
    arguments = (torch.zeros(8), 1, 1.0, True, 1, 1.0)
    make(never)(arguments, 1, 1, 0, 0, ctypes.addressof(buffer), 2)
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
    library: ctypes.CDLL, make: Make, arguments: tuple[Any, ...], error: type[Exception], said: str
) -> None:
    calls = ctypes.c_int.in_dll(library, "calls")
    before = calls.value
    with pytest.raises(error, match=said):
        make(never)(arguments, 1, 1, 0, 0, 0, 0)
    assert calls.value == before


def test_freed_memory_is_noticed_and_an_empty_grid_launches_nothing(
    library: ctypes.CDLL, make: Make
) -> None:
    launch, one = make(never), torch.zeros(8)
    calls = ctypes.c_int.in_dll(library, "calls")
    before = calls.value
    launch((one, 1, 1.0, True, 1, 1.0), (0, 1, 1), 1, 0, 0, 0, 0)
    one.untyped_storage().resize_(0)
    with pytest.raises(ValueError, match="its memory was freed"):
        launch((one, 1, 1.0, True, 1, 1.0), 1, 1, 0, 0, 0, 0)
    assert calls.value == before


def test_a_grid_out_of_range_is_said(library: ctypes.CDLL, make: Make) -> None:
    arguments = (torch.zeros(8), 1, 1.0, True, 1, 1.0)
    with pytest.raises(OverflowError, match="the grid, block or shared memory is out of range"):
        make(never)(arguments, 1 << 32, 1, 0, 0, 0, 0)


def test_a_refused_launch_is_tried_once_more_then_told(library: ctypes.CDLL, make: Make) -> None:
    heard: list[tuple[int, bool]] = []

    def failed(code: int, *_: int, last: bool = False) -> None:
        heard.append((code, last))
        if last:
            raise RuntimeError("told")

    answer = ctypes.c_int.in_dll(library, "answer")
    answer.value = 201
    try:
        with pytest.raises(RuntimeError, match="told"):
            make(failed)((torch.zeros(8), 1, 1.0, True, 1, 1.0), 1, 1, 0, 0, 0, 0)
    finally:
        answer.value = 0
    assert heard == [(201, False), (201, True)]


def test_threads_do_not_share_a_piece_of_memory(library: ctypes.CDLL, make: Make) -> None:
    launch, x, wrong = make(never), torch.zeros(8), []

    def many(number: int) -> None:
        for round_ in range(300):
            launch((x, number * 1000 + round_, 1.0, True, 1, 1.0), 1, 1, 0, 0, 0, 0)
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
