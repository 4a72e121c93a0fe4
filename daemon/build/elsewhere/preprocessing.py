"""Preprocess a unit: a C++ source once, a CUDA source for the host and for each architecture, by
the commands that nvcc would run.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import tempfile
from pathlib import Path

from warmcc.daemon.build.elsewhere.object_strings import CannotMove
from warmcc.daemon.build.work import Work
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import ninja, shell

_STEP = re.compile(r"#\$ (.*)")
_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.S)
_SECONDS = 120.0


class Preprocessing:
    """Of one unit of a flight, which has a ``share`` of the machine."""

    def __init__(
        self, work: Work, unit: Unit, runner: Runner, permits: Permits, share: Share
    ) -> None:
        self._work = work
        self._unit = unit
        self._runner = runner
        self._permits = permits
        self._share = share
        self._environment = work.environment()

    async def texts(self) -> list[bytes]:
        """The source as the compilers proper read it. Raises CannotMove, OSError."""
        with tempfile.TemporaryDirectory(prefix="texts-", dir=self._work.tree) as folder:
            made = await self._made(Path(folder))
            return [await asyncio.to_thread(path.read_bytes) for path in made]

    async def _made(self, folder: Path) -> list[Path]:
        plan, source = self._work.plan, _word(self._unit.source)
        if self._unit.cuda:
            flags = f"{plan.cuda_cflags} --dryrun -c {source} -o unit.o {plan.cuda_post_cflags}"
            listed = await self._run(shell.decoded(f"{plan.nvcc} {flags}"))
            return await self._as_nvcc(listed, folder)
        compiler, made = ninja.shell_words(self._work.toolchain.argv), folder / "host.ii"
        flags = f"{plan.cflags} -E {source} -o {_word(made)} {plan.post_cflags}"
        await self._run(shell.decoded(f"{compiler} {flags}"))
        return [made]

    async def _as_nvcc(self, listed: str, folder: Path) -> list[Path]:
        """Run the preprocessors of nvcc's list. Raises CannotMove, OSError."""
        commands: list[tuple[list[str], dict[str, str]]] = []
        environment = self._environment
        for line in listed.splitlines():
            if (step := _STEP.fullmatch(line)) is None:
                continue
            if (assigned := _ASSIGNMENT.fullmatch(step[1])) is not None:
                environment = {**environment, assigned[1]: assigned[2].strip(' "')}
                continue
            try:
                words = shlex.split(step[1])
            except ValueError as error:
                raise CannotMove("nvcc's commands are not known") from error
            if "-E" in words:
                if words.count("-o") != 1:
                    raise CannotMove("nvcc's commands are not known")
                commands.append((words, environment))
        made = [folder / f"{number}.ii" for number in range(len(commands))]
        for (words, _), path in zip(commands, made, strict=True):
            words[words.index("-o") + 1] = str(path)
        if len(made) < 2:  # the host's and a device's
            raise CannotMove("nvcc's commands are not known")
        runs = (self._run(shlex.join(words), variables) for words, variables in commands)
        ends = await asyncio.gather(*runs, return_exceptions=True)  # so that none goes on
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return made

    async def _run(self, command: str, environment: dict[str, str] | None = None) -> str:
        """What a command prints. Raises CannotMove, OSError."""
        async with self._permits.hold(self._share):
            done = await self._runner.run(
                ["/bin/sh", "-c", command], cwd=self._work.folder,
                environment=self._environment if environment is None else environment,
                timeout=_SECONDS, writes=[self._work.tree],
            )  # fmt: skip
        if done.code != 0:
            raise CannotMove("it cannot be preprocessed")
        return done.output


def _word(path: str | os.PathLike[str]) -> str:
    return ninja.shell_words([os.fspath(path)])
