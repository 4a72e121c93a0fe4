"""``warmcc.kernel`` before a GPU is needed: which kernel is meant, and what is compiled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import warmcc
from warmcc.client.kernel import torch_op
from warmcc.client.kernel.launch_words import stream_handle
from warmcc.client.kernel.signature import SignatureError
from warmcc.errors import RequestError

TWO = "__global__ void a(float* x) {}\n__global__ void b(const float* x, float* out, int n) {}\n"
TEMPLATE = "template <typename T, int N = 2> __global__ void add(T* x, int n) {}\n"


@pytest.fixture(autouse=True)
def _here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMCC_DISABLE", "1")


@pytest.mark.parametrize(
    ("source", "arguments", "said"),
    [
        ("int f();", {}, "the source defines no kernel"),
        (TWO, {}, "several kernels, so name one of a, b"),
        (TWO, {"name": "c"}, "no kernel 'c', but a, b"),
        (TWO + "__global__ void a(int n) {}", {"name": "a"}, "2 kernels 'a'; say which with sign"),
        (TWO, {"name": "a", "strided": ("y",)}, r"a has no parameter \['y'\]"),
        (TWO, {"name": "a", "signature": "void b(int)"}, "declares b, and name is a"),
        (TEMPLATE, {"name": "add<float, 2, 3>"}, "takes 2 template arguments"),
    ],
)
def test_a_kernel_that_is_not_there_is_told_at_once(
    source: str, arguments: dict[str, Any], said: str
) -> None:
    with pytest.raises(SignatureError, match=said):
        warmcc.kernel(source, **arguments)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        ({"compiler": "clang"}, ValueError, "'nvrtc' or 'nvcc'"),
        ({"constants": {"A B": 1}}, TypeError, "not the name of a constant"),
        ({"constants": {"A": object()}}, TypeError, "not a constant, nor a type"),
        ({"block": "wide"}, TypeError, "block is a whole number"),
        ({"options": "-O3"}, TypeError, "lists of strings"),
        ({"options": ["-arch=sm_80"]}, RequestError, "pass arch="),
        ({"options": ["-rdc=true"]}, RequestError, "kernels are not linked"),
        ({"arch": "9.0"}, RequestError, "arch is like 'sm_90a'"),
    ],
)
def test_wrong_settings_are_told(
    arguments: dict[str, Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        warmcc.kernel(TWO, "a", **arguments).compile(arguments.get("arch") or "sm_90")


def test_sources_are_text_or_paths(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text(TWO)
    assert str(warmcc.kernel(tmp_path / "k.cu", "a").signature) == "a(float* x)"
    with pytest.raises(TypeError, match="not bytes"):
        warmcc.kernel(TWO.encode())  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError):
        warmcc.kernel(tmp_path / "none.cu")


def test_specialised_kernels() -> None:
    add = warmcc.kernel(TEMPLATE)
    with pytest.raises(SignatureError, match="say what T is"):
        _ = add.expression
    assert repr(add) == "<warmcc kernel add(T* x, int n)>"
    half = add.specialize(T=torch.float16, N=4, BLOCK=128)
    assert half.expression == "add<__half, 4>" and "T = __half" in repr(half)
    assert half._request("sm_90").options == ["-DBLOCK=128"]
    assert half.signature.parameters[0].type is not None
    assert half.signature.parameters[0].type.dtypes == ("float16",)
    assert half.specialize(N=8).expression == "add<__half, 8>"
    assert warmcc.kernel(TEMPLATE, "add<float>").expression == "add<float, 2>"
    with pytest.raises(TypeError, match="not a constant"):
        add.specialize(T=[])


def test_brackets_keep_what_is_compiled() -> None:
    one = warmcc.kernel(TWO, "a")
    assert one[4, 128]._compiled is one._compiled
    with pytest.raises(TypeError, match=r"a\[grid, block\]"):
        one[4]


def test_equal_brackets_are_one_kernel() -> None:
    kernel = warmcc.kernel(TEMPLATE, "add<float>", grid=1)
    assert kernel[4, (8, 2)] is kernel[4, (8, 2)] is not kernel[4, (8, 2), 16]
    assert kernel[[4], 8]._grid == [4]  # a list is no key
    assert kernel[lambda *_: 4, 8] is not kernel[lambda *_: 4, 8]
    for grid in range(1000):
        assert kernel[grid, 8]._grid == grid
    assert len(kernel._others) <= 256
    assert kernel._grid == 1
    assert kernel[4, 8].specialize(N=3)._block == (8, 1, 1)
    for _ in range(2):
        with pytest.raises(TypeError, match="block is a whole number"):
            _ = kernel[4, 1.5]


def test_streams() -> None:
    class Like:
        ptr = 7

    class Protocol:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 9

    assert [stream_handle(one) for one in (5, Like(), Protocol())] == [5, 7, 9]
    with pytest.raises(TypeError, match="not a CUDA stream"):
        stream_handle("fast")


@pytest.mark.parametrize(
    ("declaration", "mutates", "wanted"),
    [
        ("void f(const float* x, float* out, int n)", None,
         "(Tensor x, Tensor(a1!) out, int n) -> ()"),
        ("void f(float* x, float* out, double d, bool b)", ("out",),
         "(Tensor x, Tensor(a1!) out, float d, bool b) -> ()"),
        ("void f(float* self)", "self", "(Tensor(a0!) self_) -> ()"),
    ],
)  # fmt: skip
def test_schemas(declaration: str, mutates: Any, wanted: str) -> None:
    bound = warmcc.kernel("", signature=declaration).signature
    assert torch_op.schema(bound, mutates) == wanted


@pytest.mark.parametrize(
    ("mutates", "said"),
    [(("x",), "points to what is const"), (("z",), "has no pointer 'z'")],
)
def test_schemas_that_lie_are_refused(mutates: Any, said: str) -> None:
    bound = warmcc.kernel("", signature="void f(const float* x, float* out)").signature
    with pytest.raises(SignatureError, match=said):
        torch_op.schema(bound, mutates)


def test_structures_are_no_operators() -> None:
    bound = warmcc.kernel("", signature="void f(Mine m)").signature
    with pytest.raises(SignatureError, match="no operator takes a structure"):
        torch_op.schema(bound, None)


def test_an_operator_is_registered_once_and_replaced() -> None:
    """Its call needs a GPU; that torch knows what it does to its tensors does not."""
    one = warmcc.kernel(TWO, "b", grid=1, block=1)
    operator = one.as_torch_op("warmcc_test::b")
    assert operator is torch.ops.warmcc_test.b
    assert str(operator.default._schema) == (
        "warmcc_test::b(Tensor x, Tensor(a1!) out, int n) -> ()"
    )
    x, out = torch.empty(4, device="meta"), torch.empty(4, device="meta")
    assert operator(x, out, 4) is None
    other = warmcc.kernel(TWO, "b", grid=2, block=1).as_torch_op("warmcc_test::b")
    assert other is operator
    with pytest.raises(ValueError, match=r"is registered with .* take another name"):
        warmcc.kernel(TWO, "a").as_torch_op("warmcc_test::b")
    with pytest.raises(ValueError, match="is like 'namespace::name'"):
        one.as_torch_op("b")


def test_torch_compile_functionalises_the_operator() -> None:
    one = warmcc.kernel(TWO, "b", grid=1, block=1)
    operator = one.as_torch_op("warmcc_test::traced")
    graphs = []

    def keep(graph: Any, _inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def call(x: Any) -> Any:
        out = torch.empty_like(x)
        operator(x, out, 4)
        return out + 1

    torch.compile(call, backend=keep, fullgraph=True)(torch.empty(4, device="meta"))
    assert any("warmcc_test.traced" in str(node.target) for node in graphs[0].graph.nodes)


def test_without_a_gpu_an_architecture_has_to_be_named() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(warmcc.WarmccError, match=r'compile\("sm_90"\)'):
        warmcc.kernel(TWO, "a").compile()
