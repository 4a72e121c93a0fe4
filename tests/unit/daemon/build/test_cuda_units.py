"""The C++ units of a flight stand still while a CUDA unit is to have the processors."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from warmcc.daemon.build.cuda_units import Compiling
from warmcc.daemon.system.background import Step
from warmcc.daemon.system.runner import Runner


def compiling(folder: Path, play: Callable[[Compiling, psutil.Process], Awaitable[None]]) -> None:
    """Something is played while a command runs as a flight's C++ units do."""
    nothing: Any = None

    async def run() -> None:
        units = Compiling(nothing, nothing, None)
        begun: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        with contextlib.closing(Runner()) as runner:
            running = asyncio.create_task(
                runner.run(
                    ["/bin/bash", "-c", "echo $$; while [ -e run ]; do sleep 0.02; done"],
                    cwd=folder, environment=dict(os.environ), timeout=60.0, step=units.beside,
                    on_line=lambda line: begun.set_result(int(line)),
                )
            )  # fmt: skip
            process = psutil.Process(await begun)
            try:
                await play(units, process)
            finally:
                (folder / "run").unlink()
                assert (await running).code == 0

    (folder / "run").touch()
    asyncio.run(run())


async def until(process: psutil.Process, *, stopped: bool) -> None:
    for _ in range(500):
        if (process.status() == psutil.STATUS_STOPPED) is stopped:
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to that")


def test_they_stand_still_until_the_last_one_is_done(tmp_path: Path) -> None:
    async def play(units: Compiling, process: psutil.Process) -> None:
        async with units.alone():
            async with units.alone():
                await until(process, stopped=True)
            await asyncio.sleep(0.1)
            await until(process, stopped=True)
        await until(process, stopped=False)

    compiling(tmp_path, play)


def test_they_go_on_after_an_error(tmp_path: Path) -> None:
    async def play(units: Compiling, process: psutil.Process) -> None:
        with pytest.raises(ValueError, match="wrong"):
            async with units.alone():
                await until(process, stopped=True)
                raise ValueError("wrong")
        await until(process, stopped=False)

    compiling(tmp_path, play)


def test_they_go_on_where_a_signal_cannot_be_sent_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = []
    signal = Step.signal

    def refusing(self: Step, *, stop: bool) -> None:
        if not stop and len(refused) < 2:
            refused.append(stop)
            raise OSError("too many open files")
        signal(self, stop=stop)

    async def play(units: Compiling, process: psutil.Process) -> None:
        monkeypatch.setattr(Step, "signal", refusing)
        async with units.alone():
            await until(process, stopped=True)
        assert len(refused) == 2
        await until(process, stopped=False)

    compiling(tmp_path, play)


def test_one_that_has_not_begun(tmp_path: Path) -> None:
    async def run() -> None:
        nothing: Any = None
        async with Compiling(nothing, nothing, None).alone():
            pass

    asyncio.run(run())
