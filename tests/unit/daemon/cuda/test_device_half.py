"""When a mistake that cicc found behind the lean prelude is nvcc's; what fails is played here, and
real in ``tests/cuda/test_device_half.py``."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from warmcc.daemon.cuda.exact.device_half import DeviceHalf
from warmcc.daemon.cuda.front_ends import CICC, CUDAFE, Fell


def refused(behind: set[str], devices: Fell, host: Fell | None) -> Fell | None:
    """What a half takes for certain, where its front ends end so."""
    work: Any = SimpleNamespace(tree=Path("/nowhere"))
    tools: Any = SimpleNamespace(counters=SimpleNamespace(cuda_reasons={}))
    unit, own = cast(Any, SimpleNamespace(object="unit.o")), cast(Any, None)
    half = DeviceHalf(work, unit, own, tools)
    half.behind = behind

    async def compile_devices(folder: Path) -> str:
        raise devices

    async def compile_host(folder: Path) -> str:
        if host is not None:
            raise host
        return ""

    fronts: Any = SimpleNamespace(devices=compile_devices, host=compile_host)
    with pytest.raises(Fell):
        asyncio.run(half._devices(fronts))
    return half.refused


CERTAIN, UNCERTAIN = Fell(CICC, "a", final=True), Fell(CICC, "b")
HOST = Fell(CUDAFE, "c", final=True)


@pytest.mark.parametrize(
    ("behind", "devices", "host", "expected"),
    [
        (set(), CERTAIN, None, CERTAIN),
        (set(), UNCERTAIN, None, None),
        (set(), UNCERTAIN, HOST, HOST),
        (set(), CERTAIN, Fell(CUDAFE, "d"), None),
        (set(), Fell("preprocessor", "e", final=True), HOST, None),
        ({"N"}, CERTAIN, HOST, None),
    ],
    ids=["certain", "uncertain", "the host's", "the host's uncertain", "another step", "a macro"],
)
def test_what_is_certain(
    behind: set[str], devices: Fell, host: Fell | None, expected: Fell | None
) -> None:
    """Nothing is where a macro stands behind the prelude that headers mention: with it, they may
    declare more."""
    assert refused(behind, devices, host) is expected
