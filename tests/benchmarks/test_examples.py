"""The examples in docstrings are true."""

from __future__ import annotations

import pytest

import benchmarks
from tests.support import examples


@pytest.mark.parametrize("name", examples.modules(benchmarks))
def test_examples(name: str) -> None:
    assert examples.failed(name) == 0
