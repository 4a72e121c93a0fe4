"""The native launcher does what Python's does: the same bytes for the driver, or the same error."""

from __future__ import annotations

import ctypes
import gc
import math
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.client.kernel.conftest import Caller, as_usual
from warmcc.client.kernel import launcher, native, signature
from warmcc.client.kernel.arguments import Arguments

DECLARED = (
    "void f(const float* x, T* any, float4* wide, signed char b, unsigned char B, short h, "
    "unsigned short H, int i, unsigned int I, long q, unsigned long Q, float s, double d, bool t, "
    "__nv_bfloat16 r, cuComplex* z)"
)
STRIDED = frozenset({"any"})
WHOLE = torch.arange(64, dtype=torch.float32)
COMPLEX = torch.zeros(8, dtype=torch.complex64)
FREED = torch.zeros(8)
FREED.untyped_storage().resize_(0)


class Own(torch.Tensor):
    """A class of the user's."""


TENSORS = [
    WHOLE, WHOLE[1:], WHOLE[::2], WHOLE.view(8, 8).t(), WHOLE.to(torch.int32), WHOLE[:0], FREED,
    COMPLEX, COMPLEX.conj(), torch.ones(1, dtype=torch.complex64).conj().imag, WHOLE.to("meta"),
    torch.ones(4).as_subclass(Own), torch.nn.Parameter(torch.ones(4)), WHOLE.numpy(), None, 0,
    WHOLE.data_ptr(), -1, 1 << 64, "x", WHOLE.to_sparse(),
]  # fmt: skip
WHOLE_NUMBERS = [
    *(sign * (1 << bits) + more for bits in (7, 8, 15, 16, 31, 32, 63, 64) for sign in (1, -1)
      for more in (-1, 0, 1)),
    0, 1, True, 1.0, None, "1", torch.tensor(3),
]  # fmt: skip
NUMBERS = [
    0.0, -0.0, 1, True, 1e39, -1e39, 3.4028235e38, 3.4028236e38, math.inf, -math.inf, math.nan, "1",
    1 + 2**-8, 1 + 3 * 2**-8, 1e-45, None,
]  # fmt: skip
TRUTHS = [True, False, 1, 0, 2, "x", 1.0, None]
DIMS = [
    1, 0, 7, (1,), (2, 3), (4, 5, 6), (0, 1, 1), [1, 2], (), (1, 2, 3, 4), -1, (1, -1), 1 << 32,
    (1, 1 << 32), (1, 1, 1 << 32), True, 1.5, None,
]  # fmt: skip
ODD = [TENSORS] * 3 + [WHOLE_NUMBERS] * 8 + [NUMBERS] * 2 + [TRUTHS, NUMBERS, TENSORS]
GOOD = (WHOLE, WHOLE[::2], WHOLE, -1, 2, -3, 4, -5, 6, -7, 8, 0.5, 2.5, True, 1.0, COMPLEX)


def launchers(library: ctypes.CDLL, compiled: Any) -> tuple[Caller, native.Native]:
    """A caller with Python's launcher, and the native one, for a function of many types."""
    bound = signature.declared(DECLARED).bound({"T": "T"})
    handle = launcher.Handle(ctypes.c_void_p(0x1234), library.launch, lambda *_a, **_b: None)
    sizes, checks = launcher.sized(bound, None), Arguments(bound, -1, STRIDED)
    caller = Caller(launcher.make(bound, sizes, checks, handle, -1, STRIDED))
    made = native.make(compiled, bound, sizes, handle, -1, STRIDED, caller.says())
    assert made is not None
    return caller, made


def outcome(library: ctypes.CDLL, launch: Callable[..., None], words: tuple[Any, ...]) -> Any:
    """What a launch does: the driver's view of it, or the error."""
    calls, count = (ctypes.c_int.in_dll(library, name) for name in ("calls", "count"))
    before, was, count.value = calls.value, count.value, len(GOOD)
    try:
        launch(*words)
    except Exception as error:
        return type(error), str(error), calls.value - before
    finally:
        count.value = was
    sizes = [8, 8, 8, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8, 1, 2, 8]
    values = [ctypes.string_at(library.value_at(i), size) for i, size in enumerate(sizes)]
    return calls.value - before, [library.seen_at(i) for i in range(9)], values


def same(
    library: ctypes.CDLL, both: tuple[Caller, native.Native], *words: Any, stream: int = 0
) -> None:
    caller, made = both
    found = outcome(library, as_usual(made, caller), (*words, stream, 0, 0))
    assert found == outcome(library, caller.usual, (*words, stream, 0, 0))


def test_each_odd_argument_does_the_same(library: ctypes.CDLL, compiled: Any) -> None:
    both = launchers(library, compiled)
    for index, values in enumerate(ODD):
        for value in values:
            given_ = (*GOOD[:index], value, *GOOD[index + 1 :])
            same(library, both, given_, 1, 1, 0, stream=0xABCDEF0123)
    for one in DIMS:
        same(library, both, GOOD, one, 1, 0)
        same(library, both, GOOD, 1, one, 0)
    for shared in (1000, -1, 1 << 32):
        same(library, both, GOOD, 1, 1, shared)
    for wrong in ((), GOOD[:-1], (*GOOD, 1)):
        same(library, both, wrong, 1, 1, 0)


@settings(max_examples=500, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, len(ODD) - 1), st.integers(0, 99)), max_size=4),
    st.sampled_from(DIMS), st.sampled_from(DIMS),
)  # fmt: skip
def test_several_odd_arguments_do_the_same(
    library: ctypes.CDLL, compiled: Any, odd: list[tuple[int, int]], grid: Any, block: Any
) -> None:
    """Which error is told is the same too. Arguments are numbers here, since a case that fails is
    printed, and a tensor that was freed cannot be."""
    given_ = list(GOOD)
    for index, which in odd:
        given_[index] = ODD[index][which % len(ODD[index])]
    same(library, launchers(library, compiled), tuple(given_), grid, block, 0)


def test_a_usual_call_does_not_come_to_python(library: ctypes.CDLL, compiled: Any) -> None:
    def never(*_words: Any) -> None:
        raise AssertionError

    caller, made = launchers(library, compiled)
    caller.usual = never
    for grid in (5, (5,), (5, 6), (5, 6, 7), lambda x, *_more: x.numel(), lambda *_: (64, 2)):
        made(caller, GOOD, grid, (32, 2), 0)
    assert [library.seen_at(i) for i in range(6)] == [64, 2, 1, 32, 2, 1]
    moved, other = torch.ones(8), torch.ones(8)
    made(caller, (moved, *GOOD[1:]), lambda x, *_more: x.set_(other).dim(), 1, 0)
    assert ctypes.c_uint64.from_address(library.value_at(0)).value == other.data_ptr()
    for number in (math.inf, -math.inf, math.nan, -0.0, 3.4028235e38):
        made(caller, (*GOOD[:11], number, number, False, number, COMPLEX), 1, 1, 0)
    made(caller, GOOD, 0, 1, 0)
    made(caller, (torch.nn.Parameter(torch.ones(4)), *GOOD[1:]), 1, 1, 0)
    for grid in ([1], lambda *_: [1]):
        with pytest.raises(AssertionError):
            made(caller, GOOD, grid, 1, 0)
    with pytest.raises(ZeroDivisionError):  # what a function for the grid raises is the caller's
        made(caller, GOOD, lambda *_: 1 / 0, 1, 0)
    caller.device = 0
    with pytest.raises(AssertionError):
        made(caller, GOOD, 1, 1, 0)


def test_what_c_does_not_know_stays_pythons(library: ctypes.CDLL, compiled: Any) -> None:
    handle = launcher.Handle(ctypes.c_void_p(1), library.launch, lambda *_a, **_b: None)
    many = ", ".join(f"long n{index}" for index in range(600))
    for declared in ("void f(__half h)", "void f(S s)", f"void f({many})"):
        bound = signature.declared(declared).bound({})
        sizes = [one.type.size or 12 for one in bound.parameters if one.type is not None]
        says = (lambda: -1, lambda _device: 0)
        assert native.make(compiled, bound, sizes, handle, -1, frozenset(), says) is None


def test_a_launcher_lets_go_of_what_it_holds(library: ctypes.CDLL, compiled: Any) -> None:
    caller, made = launchers(library, compiled)

    def counts() -> list[int]:
        gc.collect()  # Python's launcher is part of its globals
        return [sys.getrefcount(one) for one in (made, torch.float32, GOOD[0], torch.Tensor)]

    before = counts()
    for _ in range(100):
        launchers(library, compiled)
        made(caller, GOOD, 1, 1, 0)
        made(caller, GOOD, lambda *_: (1, 1), 1, 0)
    assert counts() == before
