"""What profiles are made of: nvcc is asked once for the plan that many units need."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.warm.start import Starter
from warmcc.daemon.system.runner import Runner

NVCC = """#!/bin/sh
echo run >> {told}
sleep 0.3
{rest}
"""
PLAN = """#$ _CUDART_="cudart"
#$ gcc -E -x c++ "x.cu" -o "tmpxft_1_2-3_x.cpp4.ii"
"""


@pytest.mark.parametrize("rest", ["echo broken >&2; exit 1", f"cat <<'END' >&2\n{PLAN}END"])
def test_units_that_ask_together_have_nvcc_asked_once(tmp_path: Path, rest: str) -> None:
    """Each hears why there is no plan; what failed is tried again by those who ask later."""
    nvcc, told = tmp_path / "nvcc", tmp_path / "told"
    nvcc.write_text(NVCC.format(told=told, rest=rest))
    nvcc.chmod(0o755)
    toolkit: Any = SimpleNamespace(digest="d", nvcc=str(nvcc), variables={})
    unused: Any = None

    async def asked(starter: Starter, count: int) -> list[Any]:
        plans = (starter.plan(toolkit, [], {"PATH": "/usr/bin:/bin"}) for _ in range(count))
        return await asyncio.gather(*plans, return_exceptions=True)

    async def both(starter: Starter) -> None:
        assert {type(one) for one in await asked(starter, 5)} == {dryrun.UnknownPlan}
        assert told.read_text().split() == ["run"]
        await asked(starter, 1)
        assert told.read_text().split() == ["run"] * 2

    with contextlib.closing(Runner()) as runner:
        asyncio.run(both(Starter(tmp_path, runner, 1 << 30, 60.0, unused)))


def test_one_that_goes_leaves_the_plan_to_the_others(tmp_path: Path) -> None:
    nvcc = tmp_path / "nvcc"
    nvcc.write_text(NVCC.format(told=tmp_path / "told", rest="exit 1"))
    nvcc.chmod(0o755)
    toolkit: Any = SimpleNamespace(digest="d", nvcc=str(nvcc), variables={})
    unused: Any = None

    async def one_goes(starter: Starter) -> None:
        environment = {"PATH": "/usr/bin:/bin"}
        going = asyncio.create_task(starter.plan(toolkit, [], environment))
        staying = asyncio.create_task(starter.plan(toolkit, [], environment))
        await asyncio.sleep(0.1)
        going.cancel()
        with pytest.raises(dryrun.UnknownPlan):
            await staying

    with contextlib.closing(Runner()) as runner:
        asyncio.run(one_goes(Starter(tmp_path, runner, 1 << 30, 60.0, unused)))
