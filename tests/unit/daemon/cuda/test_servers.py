"""Fork servers, in front of a small program of our own instead of a compiler's front end."""

from __future__ import annotations

import asyncio
import contextlib
import mmap
import os
import re
import threading
from pathlib import Path

import psutil
import pytest

from warmcc.daemon.cuda.dryrun import Cudafe, Fatbinary, NvccCommand, NvccPlan
from warmcc.daemon.cuda.warm import level
from warmcc.daemon.cuda.warm.fork_servers import ForkServer, ServerDied, ServerLibrary
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.pool import Pool
from warmcc.daemon.cuda.warm.prefork import Ahead
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner

MADV_POPULATE_WRITE, MADV_COLLAPSE = 23, 25  # since Linux 5.14 and 6.1

# Reads a "prelude" of 64 MB of small numbers into its heap, then the unit's file, and writes what
# both add up to.
PROGRAM = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
struct item { struct item* next; long value; char rest[1000]; };
int main(void) {
  struct item* list = NULL;
  for (long i = 0; i < 64000; ++i) {
    struct item* one = malloc(sizeof *one);
    one->next = list;
    one->value = i;
    list = one;
  }
  long sum = 0;
  FILE* unit = fopen("unit", "r");
  if (unit == NULL || fscanf(unit, "%ld", &sum) != 1) return 3;
  for (; list != NULL; list = list->next) sum += list->value++;
  fprintf(stderr, "sum %ld\n", sum);
  char line[256];
  int heap = 0;
  for (FILE* maps = fopen("/proc/self/smaps", "r"); fgets(line, sizeof line, maps) != NULL;) {
    if (strchr(line, '-') != NULL) heap = strstr(line, "[heap]") != NULL;
    if (heap && strncmp(line, "AnonHugePages:", 14) == 0) fputs(line, stderr);
  }
  return 0;
}
"""

# Makes every name absolute by the folder that it was started in, as front ends from CUDA 13.2 on.
ABSOLUTE = r"""
#include <stdio.h>
#include <unistd.h>
static char home[4096];
static FILE* open_in_home(const char* name, const char* mode) {
  char path[8192];
  snprintf(path, sizeof path, "%s/%s", home, name);
  return fopen(path, mode);
}
static void say(const char* name) {
  char line[64] = "none";
  FILE* file = open_in_home(name, "r");
  if (file != NULL) fgets(line, sizeof line, file);
  fprintf(stderr, "%s: %s\n", name, line);
}
int main(void) {
  getcwd(home, sizeof home);
  say("unit");
  say("header");
  FILE* made = open_in_home("made", "w");
  fputs("made", made);
  return fclose(made);
}
"""


async def start(
    folder: Path, runner: Runner, *, huge: bool = False, program: str = PROGRAM
) -> ForkServer:
    environment = {"PATH": os.environ["PATH"]}
    (folder / "program.c").write_text(program)
    words = ["gcc", "-rdynamic", "program.c", "-o", "program"]
    await runner.run(words, cwd=folder, environment=environment, timeout=60.0)
    library = await ServerLibrary(folder / "library", runner).path("gcc", environment)
    server = ForkServer("program", runner, folder)
    await server.start(["./program"], environment, library, stop="unit", huge=huge, haste=Haste())
    return server


def processes(name: str = "program") -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):  # it has just ended
            if process.name() == name:
                found.append(process)
    return found


def serve(
    folder: Path, units: list[str], *, huge: bool = False, ahead: str = ""
) -> list[tuple[int, str]]:
    """Exit status and output of a fork for each unit. ``ahead``: whether each is forked ahead of
    its unit, and what happens to it before that comes: "waits", "killed" or "let go"."""
    runner = Runner()

    async def all_of_them() -> list[tuple[int, str]]:
        server = await start(folder, runner, huge=huge)
        found = []
        for number, text in enumerate(units):
            place = folder / str(number)
            place.mkdir()
            (place / "unit").write_text(text)
            if ahead:
                await server.fork_ahead()
                assert server.is_ahead
                if ahead == "killed":
                    max(processes(), key=lambda process: process.create_time()).kill()
                elif ahead == "let go":
                    server.let_go()
                elif can(MADV_POPULATE_WRITE):  # it has its own copy of the prelude
                    assert (
                        max(process.memory_full_info().uss for process in processes()) > 60_000_000
                    )
            served = await server.run(place, 60.0)
            assert not server.is_ahead
            found.append((served.code, served.output))
        if ahead:
            await server.fork_ahead()
        await server.close()
        assert list((folder / "run").iterdir()) == []
        with pytest.raises(ServerDied):
            await server.run(folder, 60.0)
        return found

    with contextlib.closing(runner):
        return asyncio.run(all_of_them())


def can(advice: int) -> bool:
    """Whether this kernel takes an advice on memory."""
    with mmap.mmap(-1, 4 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        memory.write(b"x" * (4 << 20))
        try:
            memory.madvise(advice)
        except OSError:
            return False
    return True


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path / "run"))
    return tmp_path


@pytest.mark.parametrize("huge", [False, True])
def test_each_fork_begins_behind_the_prelude(folder: Path, huge: bool) -> None:
    total = sum(range(64000))
    found = serve(folder, ["1", "2", "not a number"], huge=huge)
    assert [code for code, _ in found] == [0, 0, 3]
    assert [f"sum {total + number}\n" in output for number, (_, output) in enumerate(found, 1)] == [
        True,
        True,
        False,
    ]
    size = int(re.findall(r"AnonHugePages: *(\d+) kB", found[1][1])[0])
    assert size > 0 or not (huge and can(MADV_COLLAPSE))


@pytest.mark.parametrize("ahead", ["waits", "killed", "let go"])
def test_a_fork_made_ahead_of_need_does_the_same(folder: Path, ahead: str) -> None:
    units = ["1", "2", "not a number"]
    found = serve(folder, units, ahead=ahead)
    total = sum(range(64000))
    assert [code for code, _ in found] == [0, 0, 3]
    assert [f"sum {total + number}\n" in output for number, (_, output) in enumerate(found, 1)] == [
        True,
        True,
        False,
    ]
    assert not processes()


def test_an_absolute_name_of_the_servers_folder_means_the_childs_file(folder: Path) -> None:
    """A child reads and writes its own files by it; what it lacks it reads from the server."""
    runner = Runner()
    (folder / "header").write_text("the server's")

    async def life() -> list[str]:
        server = await start(folder, runner, program=ABSOLUTE)
        outputs = []
        for name in ("1", "2"):
            place = folder / name
            place.mkdir()
            (place / "unit").write_text(name)
            if name == "2":
                (place / "header").write_text("its own")
            outputs.append((await server.run(place, 60.0)).output)
            assert (place / "made").read_text() == "made"
        await server.close()
        return outputs

    with contextlib.closing(runner):
        assert asyncio.run(life()) == [
            "unit: 1\nheader: the server's\n",
            "unit: 2\nheader: its own\n",
        ]
    assert not (folder / "made").exists()


def test_forks_ahead_are_made_when_there_is_quiet_and_memory(folder: Path) -> None:
    runner, asked, calm, free = Runner(), [], asyncio.Event(), [True]

    def fits(size: int) -> bool:
        asked.append(size)
        return free[0]

    async def settle(count: int) -> None:
        for _ in range(500):
            if len(processes()) == count:
                return
            await asyncio.sleep(0.02)
        raise AssertionError(f"{len(processes())} processes, and not {count}")

    async def life() -> None:
        server = await start(folder, runner)
        server.memory = 64_000_000
        one = Level("lean", "maker", (), folder, [], server, server, {})
        ahead = Ahead(lambda: calm.wait(), fits)
        ahead.want(one)
        await asyncio.sleep(0.2)
        assert (
            not one.is_ahead and ahead.memory == 0 and len(processes()) == 1
        )  # somebody is waiting
        calm.set()
        await settle(3)
        for _ in range(500):  # until it knows of both forks
            if one.is_ahead and ahead.memory:
                break
            await asyncio.sleep(0.02)
        assert one.is_ahead and ahead.memory == 64_000_000
        ahead.let_go()
        await settle(1)
        assert not one.is_ahead and ahead.memory == 0
        free[0] = False
        ahead.want(one)
        await asyncio.sleep(0.2)
        assert asked == [64_000_000, 64_000_000] and len(processes()) == 1
        await server.close()
        ahead.want(one)  # of a level that is gone
        await asyncio.sleep(0.2)
        assert len(asked) == 2 and not processes()

    with contextlib.closing(runner):
        asyncio.run(life())


def test_a_level_whose_start_is_cancelled_leaves_no_server(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the last moment, when all of its servers are there and their memory is asked for."""
    measuring, runner = threading.Event(), Runner()
    release, found = threading.Event(), list[tuple[int, int]]()

    def measure(of: list[ForkServer]) -> None:
        found.append((len(sockets()), len(servers())))
        measuring.set()
        release.wait(60)

    def sockets() -> list[Path]:
        return list((folder / "run").iterdir())

    def servers() -> list[psutil.Process]:
        ours = []
        for process in processes("cc1plus"):  # a daemon that other tests share may run some too
            with contextlib.suppress(psutil.Error):
                if process.environ().get("WARMCC_SOCKET", "").startswith(str(folder)):
                    ours.append(process)
        return ours

    async def life() -> None:
        environment = {"PATH": os.environ["PATH"]}
        library = await ServerLibrary(folder / "library", runner).path("gcc", environment)
        preprocess = ["gcc", "-E", "-x", "c++", "unit.cu", "-o", "unit.ii"]
        front_end = [
            "gcc",
            "-E",
            "-x",
            "c++",
            "unit.ii",
        ]  # reads what it is given, as cudafe++ would
        step = NvccCommand.of(preprocess)
        plan = NvccPlan(
            step, Cudafe(front_end, step.output, "", ""), (), Fatbinary([], (), ()), step
        )
        recipe = level.Recipe(
            "lean", "maker", ("vector",), [], plan, "programs", environment, library, runner,
            folder / "servers", Pool(),
        )  # fmt: skip
        task = asyncio.create_task(level.start(recipe, Haste()))
        while not measuring.is_set():
            assert not task.done(), task
            await asyncio.sleep(0.02)
        task.cancel()
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert found == [(2, 2)]
        assert sockets() == [] and servers() == [] and not list((folder / "servers").iterdir())

    monkeypatch.setattr(level, "_measure", measure)
    with contextlib.closing(runner):
        asyncio.run(life())


def test_a_server_that_was_closed_does_not_start(folder: Path) -> None:
    async def life() -> None:
        server = ForkServer("program", runner, folder)
        await server.close()
        with pytest.raises(ServerDied, match="closed before it started"):
            await server.start(["sleep", "60"], {}, folder, stop="unit", haste=Haste())
        assert not server.alive

    runner = Runner()
    with contextlib.closing(runner):
        asyncio.run(life())
