"""Calls of the fork servers fail at random (native/forkserver.c), behind a small program in place
of a front end.

Whoever asks one gets the right answer, or hears at once that there is none; the server goes on,
nothing is left of its forks, and no signal goes to anybody else. WARMCC_FAULTS=all injects some
thousand; WARMCC_SEED says which.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest

from tests.support.fault.injecting import Injector, counted
from warmcc.daemon.cuda.warm.fork_servers import ForkServer, ServerDied, ServerLibrary
from warmcc.daemon.system.runner import Runner

ROUNDS = 300 if os.environ.get("WARMCC_FAULTS") == "all" else 15
SEED = int(os.environ.get("WARMCC_SEED", "20261123"))
ASKED = 12  # units in a round
SECONDS = 20.0  # after which an answer does not come any more
KINDS = ("fork", "accept", "open", "chdir", "dup", "pidfd", "receive", "send")
PROGRAM = r"""
#include <stdio.h>
int main(void) {
  long prelude = 1000, number;
  FILE* unit = fopen("unit", "r");
  if (unit == NULL || fscanf(unit, "%ld", &number) != 1) return 3;
  fprintf(stderr, "sum %ld\n", prelude + number);
  return 0;
}
"""


@contextlib.asynccontextmanager
async def served(folder: Path, injector: Injector, runner: Runner) -> AsyncIterator[ForkServer]:
    """A fork server whose calls can be made to fail."""
    environment = {"PATH": os.environ["PATH"], **injector.environment, "INJECT_PROGRAM": "program"}
    plain = {"PATH": os.environ["PATH"]}
    (folder / "program.c").write_text(PROGRAM)
    words = ["gcc", "-rdynamic", "program.c", "-o", "program"]
    assert (await runner.run(words, cwd=folder, environment=plain, timeout=60.0)).code == 0
    library = await ServerLibrary(folder / "library", runner).path("gcc", plain)
    server = ForkServer("program", runner, folder)
    await server.start(
        ["./program"], environment, Path(f"{library}:{injector.library}"), stop="unit"
    )
    try:
        yield server
    finally:
        await server.close()


def processes() -> list[psutil.Process]:
    return [one for one in psutil.Process().children(recursive=True) if one.name() == "program"]


async def one_alone() -> psutil.Process:
    """The server, once its forks have ended."""
    for _ in range(500):
        if len(found := processes()) == 1:
            return found[0]
        await asyncio.sleep(0.01)
    raise AssertionError(f"{len(found)} processes are there, and not one")


async def ask(server: ForkServer, folder: Path, number: int, *, ahead: bool) -> str:
    """Have a unit made, and say how that ended. Raises AssertionError when it is wrong, or does not
    end.
    """
    folder.mkdir()
    (folder / "unit").write_text(f"{number}\n")
    try:
        if ahead:
            await asyncio.wait_for(server.fork_ahead(), SECONDS)
        made = await server.run(folder, SECONDS)
    except asyncio.TimeoutError as error:
        raise AssertionError("it hangs") from error
    except (ServerDied, OSError) as error:
        assert "took too long" not in str(error), "it hangs"
        return "refused"
    if made.code == 0:
        assert made.output == f"sum {1000 + number}\n", made
        return "right"
    return f"status {made.code}"


def test_a_fork_server_whose_calls_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path / "run"))
    injector, runner = Injector(tmp_path, ""), Runner()
    met: Counter[str] = Counter()
    told: Counter[str] = Counter()

    async def life() -> None:
        async with served(tmp_path, injector, runner) as server:
            before = (await one_alone()).num_fds()
            for turn in range(ROUNDS):
                injector.arm_random(KINDS, SEED + turn, 0.15)
                for number in range(ASKED):
                    place = tmp_path / f"{turn}-{number}"
                    told[await ask(server, place, turn * 100 + number, ahead=number % 3 == 0)] += 1
                server.let_go()
                met.update(injector.disarm()[1])
                assert injector.strays == 0, (
                    f"a signal went to everybody (WARMCC_SEED={SEED + turn})"
                )
                assert await ask(server, tmp_path / f"{turn}", turn, ahead=False) == "right", (
                    f"seed {SEED + turn}"
                )
                assert (await one_alone()).num_fds() == before, f"seed {SEED + turn}"

    try:
        with contextlib.closing(runner):
            asyncio.run(life())
    finally:
        injector.close()
    print(f"\nfork server: {counted(met)} faults; answers: {counted(told)}")
    assert set(met) == set(KINDS)
    assert told["right"] > 0 and set(told) - {"right", "refused"} <= {"status 99"}
