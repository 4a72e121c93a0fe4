"""A kernel that is launched again and again becomes native by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

import warmcc
from tests.support.daemons import Daemon
from warmcc.client.connection import session
from warmcc.client.kernel import loaded, native

COUNT = """
__global__ void count(int* x, int by) { if (threadIdx.x == 0) atomicAdd(x, by); }
"""


@pytest.fixture(autouse=True)
def served(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    session.forget()
    yield
    session.forget()


@pytest.mark.parametrize("has_daemon", [True, False])
def test_many_launches_become_native_where_a_daemon_serves(
    monkeypatch: pytest.MonkeyPatch, has_daemon: bool
) -> None:
    if not has_daemon:
        monkeypatch.setenv("WARMCC_DISABLE", "1")
    monkeypatch.setattr(native, "_fetched", [])
    kernel, x = warmcc.kernel(COUNT, grid=2, block=32), torch.zeros(1, dtype=torch.int32).cuda()
    for _ in range(loaded.MANY + 1):
        kernel(x, 3)
    end = time.monotonic() + (60 if has_daemon else 1)
    launches = loaded.MANY + 1
    while kernel._native is None and time.monotonic() < end:
        time.sleep(0.01)
        kernel(x, 3)
        launches += 1
    assert (type(kernel._native).__name__ == "NativeLauncher") == has_daemon
    kernel(x, 3)
    other = kernel[(1, 1, 1), 32]
    assert other._native is kernel._native
    other(x, 1)
    assert x.item() == 2 * 3 * (launches + 1) + 1


def test_both_forms_of_a_call_keep_their_settings() -> None:
    """A kernel with other defaults shares what is loaded, and nothing of its launch."""
    template = "template <typename T> __global__ void add(T* x) { atomicAdd(x, T(1)); }"
    kernel, x = warmcc.kernel(template), torch.zeros(1, dtype=torch.int32).cuda()
    kernel[2, 4](x)
    kernel[3, 1](x)
    kernel(x, grid=5, block=(2, 2))
    assert x.item() == 8 + 3 + 20
    with pytest.raises(TypeError, match="grid is not set"):
        kernel(x, block=4)
    with pytest.raises(TypeError, match="block is not set"):
        kernel(x, grid=4)
    assert x.item() == 31
