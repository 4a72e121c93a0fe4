"""Signatures, read from sources."""

from __future__ import annotations

import pytest

from warmcc.client.kernel import signature
from warmcc.client.kernel.signature import SignatureError

SOURCE = """
// __global__ void in_a_comment(int);
#define REAL float
const char* text = "__global__ void in_a_string(int);";
using scalar = __half;
typedef unsigned long long counter;
namespace deep {
template <typename T, int N = 4>
__global__ __launch_bounds__(256, 2) void add(
    const T* __restrict__ a, T *b, scalar const* c, unsigned n, REAL y, float4* v,
    const __grid_constant__ CUtensorMap map, uint8_t q[], counter* hits, bool f = true) { g(a); }
}
extern "C" __global__ void nothing(void) {}
template __global__ void add<float, 2>(const float*);
__global__ void later(float*, int);
__global__ void later(float* x, int n) { }
static __global__ void __launch_bounds__(128) after(std::size_t n, half h, unsigned char) { }
"""


def types(text: str, name: str, **arguments: str) -> dict[str, tuple[str, str, tuple[str, ...]]]:
    (found,) = [one for one in signature.kernels(text) if one.name == name]
    return {
        one.name: (one.type.kind, one.type.format, one.type.dtypes)
        for one in found.bound(arguments).parameters if one.type is not None
    }  # fmt: skip


def test_only_kernels_that_are_defined_are_found() -> None:
    found = signature.kernels(SOURCE)
    assert [one.name for one in found] == ["add", "nothing", "later", "after"]
    assert [one.is_c for one in found] == [False, True, False, False]


def test_types_follow_templates_aliases_and_macros() -> None:
    assert types(SOURCE, "add", T="double") == {
        "a": ("pointer", "Q", ("float64",)), "b": ("pointer", "Q", ("float64",)),
        "c": ("pointer", "Q", ("float16",)), "n": ("integer", "I", ()), "y": ("float", "f", ()),
        "v": ("pointer", "Q", ("float32",)), "map": ("struct", "", ()),
        "q": ("pointer", "Q", ("uint8",)), "hits": ("pointer", "Q", ("uint64",)),
        "f": ("bool", "?", ()),
    }  # fmt: skip


def test_unnamed_parameters_and_definitions_behind_declarations() -> None:
    assert list(types(SOURCE, "later")) == ["x", "n"]
    assert types(SOURCE, "after") == {
        "n": ("integer", "Q", ()), "h": ("float", "e", ()), "argument2": ("integer", "B", ()),
    }  # fmt: skip
    assert types(SOURCE, "nothing") == {}


@pytest.mark.parametrize(
    ("text", "const", "size"),
    [
        ("const float* x", True, 4), ("float const * x", True, 4), ("float* const x", False, 4),
        ("double2* x", False, 16), ("void* x", False, 0), ("const int** x", True, 8),
        ("long long int x[4]", False, 8), ("mine::Thing* x", False, 0),
    ],
)  # fmt: skip
def test_pointers(text: str, const: bool, size: int) -> None:
    (found,) = signature.declared(f"void f({text})").bound({}).parameters
    assert found.name == "x" and found.type is not None
    assert (found.type.kind, found.type.const, found.type.element) == ("pointer", const, size)


@pytest.mark.parametrize(("element", "alignment"), [("float3", 4), ("float4", 16), ("double4", 16),
                                                    ("char", 1), ("void", 1)])  # fmt: skip
def test_alignments_are_what_one_load_needs(element: str, alignment: int) -> None:
    (found,) = signature.declared(f"void f({element}* x)").bound({}).parameters
    assert found.type is not None and found.type.alignment == alignment


def test_name_expressions() -> None:
    (add,) = [one for one in signature.kernels(SOURCE) if one.name == "add"]
    assert signature.expression(add, {"T": "float"}) == "add<float, 4>"
    assert signature.template_arguments(add, [" float", " 8"]) == {"T": "float", "N": "8"}
    with pytest.raises(SignatureError, match=r"say what T is, as in .* specialize\(T="):
        signature.expression(add, {})
    with pytest.raises(SignatureError, match="takes 2 template arguments, and 3 are given"):
        signature.template_arguments(add, ["a", "b", "c"])


@pytest.mark.parametrize("text", ["", "int x", "void (", "f"])
def test_what_is_no_declaration_is_refused(text: str) -> None:
    with pytest.raises(SignatureError):
        signature.declared(text)


def test_references_are_refused() -> None:
    with pytest.raises(SignatureError, match="a reference cannot be passed"):
        signature.declared("void f(const int& x)").bound({})


def test_functions_of_c_are_found_where_they_are_defined() -> None:
    text = "static int helper(int a) { return a; }\nlong twice(long a) { return helper(a) * 2; }\n"
    found = signature.defined(text, "twice")
    assert (str(found), found.result) == ("twice(long a)", "long")
    with pytest.raises(SignatureError, match="no function 'thrice'"):
        signature.defined(text, "thrice")
