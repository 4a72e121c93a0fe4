"""The fixture ``warmcc_module`` builds an extension once in a session of pytest."""

from pathlib import Path

import pytest
import torch


@pytest.fixture
def ext(warmcc_module):
    return warmcc_module("relu", Path(__file__).with_name("relu.cpp"), ["relu"])


@pytest.mark.parametrize("shape", [(), (3,), (2, 5)])
def test_relu(ext, shape):
    x = torch.randn(shape)
    assert torch.equal(ext.relu(x), torch.relu(x))
