"""The operators against torch's own, on tensors that hypothesis makes up.

Run as ``TENSOR_OPS=build/libtensor_ops.so python -m pytest tests``.
"""

import os

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

torch.ops.load_library(os.path.abspath(os.environ.get("TENSOR_OPS", "build/libtensor_ops.so")))
ops = torch.ops.cmake_tensor
numbers = st.floats(-1e3, 1e3, width=32)


@given(st.lists(numbers, min_size=1, max_size=40), st.data())
@settings(deadline=None)
def test_moving_average(values, data):
    window = data.draw(st.integers(1, len(values)))
    wanted = [sum(values[i : i + window]) / window for i in range(len(values) - window + 1)]
    found = ops.moving_average(torch.tensor(values, dtype=torch.float64), window)
    assert torch.allclose(found, torch.tensor(wanted, dtype=torch.float64))


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(1, 5),
    st.sampled_from([1, 2]),
    st.integers(0, 99),
)
@settings(deadline=None)
def test_pairwise(n, m, d, p, seed):
    torch.manual_seed(seed)
    left, right = torch.randn(n, d), torch.randn(m, d)
    assert torch.allclose(ops.pairwise(left, right, p), torch.cdist(left, right, p), atol=1e-5)
    if torch.cuda.is_available():
        found = ops.pairwise(left.cuda(), right.cuda(), p)
        assert torch.allclose(found.cpu(), torch.cdist(left, right, p), atol=1e-4)


@given(st.lists(numbers, min_size=1))
@settings(deadline=None)
def test_summary(values):
    least, most, mean = ops.summary(torch.tensor(values, dtype=torch.float64))
    assert (least, most) == (min(values), max(values))
    assert mean == pytest.approx(sum(values) / len(values), abs=1e-6)


def test_wrong_arguments():
    with pytest.raises(RuntimeError, match="neither 1 nor 2"):
        ops.pairwise(torch.ones(1, 1), torch.ones(1, 1), 3)
    with pytest.raises(RuntimeError, match="the tensor is empty"):
        ops.summary(torch.ones(0))
