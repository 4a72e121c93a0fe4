"""The examples in docstrings are true."""

from __future__ import annotations

import pytest

import warmcc
from tests.support import examples


@pytest.mark.parametrize("name", examples.modules(warmcc))
def test_examples(name: str) -> None:
    pytest.importorskip("IPython") if name.endswith("notebook") else None
    assert examples.failed(name) == 0
