"""Which headers of the installed torch a source's names lead to."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from warmcc.client.slim import needs
from warmcc.client.slim.index import FACTORIES, Index
from warmcc.client.slim.text import ALIAS, Block


@pytest.fixture(scope="module")
def index() -> Index:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    include = Path(spec.origin).parent / "include"
    return Index([include, include / "torch/csrc/api/include"])


def block(text: str, index: Index, *, aliases: bool = False, binds: bool = False) -> Block:
    return needs.reduced(needs.block(text, index, aliases=aliases, binds=binds), index)


def test_names_lead_to_headers(index: Index) -> None:
    text = 'void f(const at::Tensor& x) { TORCH_CHECK(x.dim() == 2, "x"); std::vector<int> v; }'
    found = block(text, index)
    assert found.headers == ("ATen/core/Tensor.h", "vector")
    assert not found.lines


def test_an_operator_has_a_header(index: Index) -> None:
    found = block("at::Tensor f(at::Tensor x) { return at::empty_like(x); }", index)
    assert found.headers == ("ATen/ops/empty_like.h",)


def test_names_in_torch_need_its_types_or_a_line(index: Index) -> None:
    text = "torch::Tensor f(torch::Tensor x) { return torch::softmax(x.to(torch::kF16), 1); }"
    assert block(text, index).headers == ("torch/types.h",)
    found = block(text, index, aliases=True)
    assert found.headers == ("ATen/ops/softmax.h",)
    assert found.lines == (
        ALIAS, "namespace torch { constexpr auto kFloat16 = at::kHalf; }",
        "namespace torch { constexpr auto kF16 = kFloat16; }",
    )  # fmt: skip


def test_factories_of_torch_are_not_those_of_at(index: Index) -> None:
    found = block("auto f() { return torch::zeros({1}); }", index, aliases=True)
    assert found.headers == (FACTORIES,)
    assert found.per_operator, "else that header brings all operators along"
    assert "ATen/Functions.h" not in index.closure(FACTORIES, per_operator=True)
    assert "ATen/Functions.h" in index.closure(FACTORIES)


def test_bound_functions_need_the_casters(index: Index) -> None:
    assert "torch/csrc/Exceptions.h" in block("int f();", index, binds=True).headers


def test_what_another_header_brings_along_is_left_out(index: Index) -> None:
    both = Block(("ATen/core/Tensor.h", "ATen/ops/empty.h", "c10/util/Exception.h"))
    assert needs.reduced(both, index).headers == ("ATen/ops/empty.h",)


def test_unknown_names_are_looked_for_in_the_headers(index: Index) -> None:
    def first(name: str) -> str:
        return needs.for_name(name, index, per_operator=True)[0]

    assert first("c10::IntArrayRef") == "c10/util/ArrayRef.h"
    assert first("at::empty_like") == "ATen/ops/empty_like.h"
    assert first("std::mutex") == "mutex"
    assert first("maybe_wrap_dim") in ("c10/core/WrapDimMinimal.h", "ATen/WrapDimUtils.h")
    assert needs.for_name("not_a_name_of_torch_at_all", index, per_operator=True) == []
