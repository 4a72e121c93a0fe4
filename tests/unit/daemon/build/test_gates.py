"""Gates: ninja's own commands wait for permits, with a real ninja and real shells."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

import psutil
import pytest

from warmcc.daemon.build.gates import Gates
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Finished, Runner
from warmcc.daemon.toolchain.ninja import executable

# Each command notes how many run at the time; `hold` keeps it until a file is there.
COUNT = "touch $out.runs && ls *.runs | wc -l >>counts && sleep 0.05 && rm $out.runs && touch $out"
RULE = f"rule note\n  command = ${{gate}}{COUNT}\n"
HOLD = (
    "rule hold\n"
    "  command = ${gate}touch $out.runs && while [ ! -e go ]; do sleep 0.01; done && touch $out\n"
)


def build(
    tree: Path, commands: int, permits: Permits, *, rule: str = "note", most: int = 64,
    beside: Callable[[], Awaitable[None]] | None = None, first: Collection[int] = (),
    on_begun: Callable[[dict[int, tuple[float, float]]], None] = lambda _: None,
) -> Finished:  # fmt: skip
    """Have ninja run so many commands at gates."""
    share = Share("client", most)
    gates = Gates(tree, commands, permits, share, first, lambda: on_begun(gates.ran))
    lines = [RULE, HOLD]
    for number in range(commands):
        lines += [
            f"build out{number}: {rule}\n",
            f"  gate = {gates.command(number).replace('$', '$$')}\n",
        ]
    (tree / "build.ninja").write_text("".join(lines))

    async def run() -> Finished:
        ninja = executable()
        assert ninja is not None
        with contextlib.closing(Runner()) as runner:
            run = runner.run(
                [ninja, "-v", "-j", "64"], cwd=tree, environment=dict(os.environ), timeout=60.0
            )
            task = asyncio.create_task(gates.serve(run))
            try:
                if beside is not None:
                    await beside()
                done = await task
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        assert permits.in_use == 0
        return Finished(done.code, gates.without(done.output))

    return asyncio.run(run())


@pytest.mark.parametrize(("limit", "most", "together"), [(1, 64, 1), (3, 64, 3), (8, 2, 2)])
def test_no_more_run_than_there_are_permits(
    tmp_path: Path, limit: int, most: int, together: int
) -> None:
    done = build(tmp_path, 12, Permits(limit, 1), most=most)
    assert done.code == 0, done.output
    assert max(map(int, (tmp_path / "counts").read_text().split())) == together
    assert all((tmp_path / f"out{number}").exists() for number in range(12))


def test_the_longest_commands_begin_first_and_it_is_told_when_all_have(tmp_path: Path) -> None:
    permits = Permits(1, 1)
    ended: list[int] = []

    async def all_wait() -> None:
        while permits.queue_length < 5:
            await asyncio.sleep(0.01)
        (tmp_path / "go").touch()

    done = build(
        tmp_path, 6, permits, rule="hold", beside=all_wait, first={4, 5},
        on_begun=lambda ran: ended.append(len(ran)),
    )  # fmt: skip
    assert done.code == 0, done.output
    assert len(ended) == 1 and ended[0] <= 2, "at most one other command ended before the last"


@pytest.mark.parametrize("name", ["plain", "a b", "it's", "$HOME", "ünï"])
def test_what_is_printed_is_what_it_would_be_without(tmp_path: Path, name: str) -> None:
    tree = tmp_path / name
    tree.mkdir()
    done = build(tree, 2, Permits(2, 1))
    assert done.code == 0, done.output
    assert "gates" not in done.output
    assert done.output.startswith("[1/2] touch out")


def processes(tree: Path) -> dict[psutil.Process, str]:
    """The shells that ninja has started, with their commands. A shell's child has the same line
    until it becomes the program that it runs: so a line is read once."""
    found = {}
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            if process.cwd() == str(tree) and line[:2] == ["/bin/sh", "-c"] and "exec 9" in line[2]:
                found[process] = line[2]
    return found


def test_a_command_that_is_killed_gives_its_permit_back(tmp_path: Path) -> None:
    permits = Permits(1, 1)

    async def beside() -> None:
        while not (running := list(tmp_path.glob("*.runs"))):
            await asyncio.sleep(0.01)
        touch = f"touch {running[0].name} "
        for process, command in processes(tmp_path).items():
            if touch in command:
                process.send_signal(signal.SIGKILL)
        while len(list(tmp_path.glob("*.runs"))) < 2:  # the next one begins
            await asyncio.sleep(0.01)
        (tmp_path / "go").touch()

    done = build(tmp_path, 2, permits, rule="hold", beside=beside)
    assert done.code != 0, "ninja says so, as for any command that was killed"


def test_who_waits_at_a_gate_can_be_killed_too(tmp_path: Path) -> None:
    permits = Permits(1, 1)

    async def beside() -> None:
        while len(processes(tmp_path)) < 3 or not list(tmp_path.glob("*.runs")):
            await asyncio.sleep(0.01)
        (running,) = tmp_path.glob("*.runs")
        for process, command in processes(tmp_path).items():
            if f"touch {running.name} " not in command:
                process.kill()
        (tmp_path / "go").touch()

    build(tmp_path, 3, permits, rule="hold", beside=beside)
    assert permits.queue_length == 0


def test_a_run_that_is_given_up_leaves_no_permit_and_no_process(tmp_path: Path) -> None:
    permits = Permits(2, 1)

    async def give_up() -> None:
        while len(list(tmp_path.glob("*.runs"))) < 2:
            await asyncio.sleep(0.01)
        raise TimeoutError

    with pytest.raises(TimeoutError):
        build(tmp_path, 5, permits, rule="hold", beside=give_up)
    assert (permits.in_use, permits.queue_length) == (0, 0)
    assert processes(tmp_path) == {}


def test_where_no_pipe_can_be_had_the_run_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its commands would wait until the time of the build is over."""

    async def none(_: Path) -> int | None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    permits = Permits(2, 1)
    monkeypatch.setattr(Gates, "_opened", staticmethod(none))
    with pytest.raises(OSError, match="Too many open files"):
        build(tmp_path, 3, permits)
    assert (permits.in_use, permits.queue_length) == (0, 0)
    assert processes(tmp_path) == {}
