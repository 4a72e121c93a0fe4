"""The examples in docstrings are true."""

from __future__ import annotations

import pytest

import benchmarks
from tests.support import examples


@pytest.mark.parametrize("name", examples.modules(benchmarks))
def test_examples(name: str) -> None:
    if name.startswith("benchmarks.muta"):
        pytest.importorskip("libcst", reason="only the benchmark of the tests needs it")
    assert examples.failed(name) == 0
