"""Arguments that do not fit a signature: one clear error each."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from warmcc.client.kernel import signature
from warmcc.client.kernel.arguments import Arguments


def checks(text: str, device: int = -1, *strided: str) -> Arguments:
    return Arguments(signature.declared(text).bound({}), device, frozenset(strided))


def freed() -> torch.Tensor:
    one = torch.zeros(8)
    one.untyped_storage().resize_(0)
    return one


class Exported:
    """Has DLPack, and nothing else of a tensor."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __dlpack__(self, **more: Any) -> Any:
        return self.tensor.__dlpack__()

    def __dlpack_device__(self) -> Any:
        return self.tensor.__dlpack_device__()


@pytest.mark.parametrize(
    ("value", "error", "said"),
    [
        (torch.zeros(8, dtype=torch.float64), TypeError,
         r"f\(\): argument 1 of 1, `const float\* x`: float32 is expected, and a float64 tensor of "
         r"shape \[8\] on cpu was given; pass x.to\(torch.float32\)"),
        (torch.zeros(4, 4).t(), ValueError, r"not contiguous \(strides \[1, 4\]\); pass x.contig"),
        (freed(), ValueError, "needs 32 bytes, and its storage has 0: its memory was freed"),
        (torch.zeros(8).to_sparse(), TypeError, "torch.sparse_coo, not dense"),
        (torch.zeros(8, device="meta"), ValueError, "is not in the host's memory"),
        ([1.0], TypeError, r"a tensor is expected .*list \[1.0\] was given"),
        (1.5, TypeError, "a tensor is expected"),
        (True, TypeError, "a tensor is expected"),
        ("x" * 99, TypeError, r"str 'x+\.\.\. was given"),
        (-1, ValueError, "-1 is no address"),
        (1 << 64, ValueError, "is no address"),
    ],
)  # fmt: skip
def test_pointers_that_do_not_fit(value: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        checks("void f(const float* x)").pointer(0, value)


@pytest.mark.parametrize("of", ["slice", "shrunk"])
def test_a_part_of_what_was_freed_is_noticed(of: str) -> None:
    one = torch.zeros(1000)
    part = one[500:] if of == "slice" else one
    one.untyped_storage().resize_(0 if of == "slice" else 100)
    with pytest.raises(ValueError, match="its memory was freed"):
        checks("void f(float* x)").pointer(0, part)


def test_a_tensor_on_the_host_is_refused_for_a_gpu() -> None:
    with pytest.raises(ValueError, match=r"on cpu is not on the GPU; pass x.cuda\(\)"):
        checks("void f(float* x)", 0).pointer(0, torch.zeros(8))


def test_addresses_are_aligned_to_what_is_loaded() -> None:
    with pytest.raises(ValueError, match=r"no multiple of 16 bytes; pass x.clone\(\)"):
        checks("void f(float4* x)").pointer(0, torch.zeros(8)[1:])


def test_lazily_conjugated_tensors_are_refused() -> None:
    with pytest.raises(ValueError, match=r"pass x.resolve_conj\(\)"):
        checks("void f(float2* x)").pointer(0, torch.zeros(8, dtype=torch.complex64).conj())


def test_pointers_that_fit() -> None:
    one, other = checks("void f(float* x)"), torch.zeros(4, 4)
    assert one.pointer(0, other) == one.pointer(0, Exported(other)) == other.data_ptr()
    assert one.pointer(0, torch.nn.Parameter(other)) == other.data_ptr()
    assert one.pointer(0, None) == 0 and one.pointer(0, 0x7F0000001234) == 0x7F0000001234
    assert one.pointer(0, torch.zeros(0)) == 0
    view = other.t()
    assert checks("void f(float* x)", -1, "x").pointer(0, view) == view.data_ptr()
    assert checks("void f(void* x)").pointer(0, torch.zeros(4, dtype=torch.int8))


def test_traced_tensors_are_refused() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        fake = torch.empty(4)
    with pytest.raises(TypeError, match="as_torch_op"):
        checks("void f(float* x)").pointer(0, fake)


@pytest.mark.parametrize(
    ("method", "value", "said"),
    [
        ("integer", 1.0, r"argument 1 of 1, `int n`: a whole number is expected, and float 1.0"),
        ("integer", "1", "a whole number is expected"),
        ("integer", torch.tensor(1), r"pass n.item\(\)"),
        ("number", "1.0", "a number is expected, and str '1.0'"),
        ("number", None, "a number is expected"),
        ("number", torch.tensor(1.0), r"pass n.item\(\)"),
        ("truth", 1.0, "True or False is expected"),
        ("truth", "yes", "True or False is expected"),
    ],
)
def test_numbers_that_do_not_fit(method: str, value: Any, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        getattr(checks("void f(int n)"), method)(0, value)


def test_numbers_that_fit() -> None:
    import numpy

    one = checks("void f(int n)")
    assert one.integer(0, numpy.int64(7)) == 7 and one.integer(0, True) == 1
    assert one.number(0, numpy.float32(0.5)) == 0.5 and one.number(0, 3) == 3.0
    assert one.truth(0, numpy.bool_(True)) is True and one.truth(0, 0) is False


@pytest.mark.parametrize("value", [0.0, 1.0, -1.5, 3.14159, 1e-40, 3e38, 1e300, -1e300,
                                   float("inf"), float("nan")])  # fmt: skip
def test_bfloat16_is_rounded_as_torch_does(value: float) -> None:
    bits = checks("void f(int n)").bfloat16(0, value)
    wanted = torch.tensor(value).to(torch.bfloat16).view(torch.int16).item() & 0xFFFF
    assert bits == wanted


def test_structures() -> None:
    class Pair(ctypes.Structure):
        _fields_ = [("a", ctypes.c_int), ("b", ctypes.c_float)]

    one = checks("void f(Pair n)")
    assert one.structure(0, Pair(1, 0.5), 8) == one.structure(0, bytes(Pair(1, 0.5)), 8)
    with pytest.raises(ValueError, match="8 bytes are expected, and 4 were given"):
        one.structure(0, b"1234", 8)
    with pytest.raises(TypeError, match="the bytes of the structure are expected"):
        one.structure(0, 5, 8)


def test_a_wrong_count_names_the_parameters() -> None:
    error = checks("void f(float* x, int n)").count((1,))
    assert str(error) == "f() takes 2 arguments (float* x, int n), and 1 was given"
