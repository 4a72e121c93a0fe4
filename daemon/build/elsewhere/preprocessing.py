"""Preprocess the source of a request to compile: a C++ source once, a CUDA source for the host and
for each architecture, by the commands that nvcc would run.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
from pathlib import Path

from warmcc.daemon.build.elsewhere.object_strings import CannotMove
from warmcc.daemon.plan import requested
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain, ninja, shell
from warmcc.request import Request

_STEP = re.compile(r"#\$ (.*)")
_ASSIGNMENT = re.compile(r"(\w+)=(.*)", re.S)
_SECONDS = 120.0


class Preprocessing:
    """Of one request, with files in the folder ``tree``."""

    def __init__(
        self, request: Request, toolchain: Toolchain, tree: Path, runner: Runner, permits: Permits
    ) -> None:
        self._request = request
        self._toolchain = toolchain
        self._tree = tree
        self._runner = runner
        self._permits = permits
        self._share = Share(self, permits.limit)
        self._environment = {
            **requested.build_environment(request), "TMPDIR": str(tree)
        }  # fmt: skip

    async def texts(self) -> list[bytes]:
        """The source as the compilers proper read it. Raises CannotMove, OSError."""
        (source,) = map(_word, self._request.sources)
        cuda = self._toolchain.cuda
        if not requested.with_cuda(self._request):
            compiler = ninja.shell_words(self._toolchain.argv)
            flags = " ".join(self._request.extra_cflags)
            made = [self._tree / "host.ii"]
            await self._run(shell.decoded(f"{compiler} {flags} -E {source} -o {_word(made[0])}"))
        elif cuda is not None:
            flags = " ".join(self._request.extra_cuda_cflags)
            command = f"{_word(cuda.nvcc)} {flags} --dryrun -c {source} -o unit.o"
            made = await self._as_nvcc(await self._run(shell.decoded(command)))
        return [await asyncio.to_thread(path.read_bytes) for path in made]

    async def _as_nvcc(self, listed: str) -> list[Path]:
        """Run the preprocessors of nvcc's list. Raises CannotMove, OSError."""
        commands: list[tuple[list[str], dict[str, str]]] = []
        environment = self._environment
        for line in listed.splitlines():
            if (step := _STEP.fullmatch(line)) is None:
                continue
            if (assigned := _ASSIGNMENT.fullmatch(step[1])) is not None:
                environment = {**environment, assigned[1]: assigned[2].strip(' "')}
                continue
            words = shlex.split(step[1])
            if "-E" in words:
                if words.count("-o") != 1:
                    raise CannotMove("nvcc's commands are not known")
                commands.append((words, environment))
        made = [self._tree / f"{number}.ii" for number in range(len(commands))]
        for (words, _), path in zip(commands, made, strict=True):
            words[words.index("-o") + 1] = str(path)
        await asyncio.gather(*(self._run(shlex.join(words), env) for words, env in commands))
        if len(made) < 2:  # the host's and a device's
            raise CannotMove("nvcc's commands are not known")
        return made

    async def _run(self, command: str, environment: dict[str, str] | None = None) -> str:
        """What a command prints. Raises CannotMove, OSError."""
        async with self._permits.hold(self._share):
            done = await self._runner.run(
                ["/bin/sh", "-c", command],
                cwd=Path(requested.workdir(self._request) or self._tree),
                environment=self._environment if environment is None else environment,
                timeout=_SECONDS, writes=[self._tree],
            )  # fmt: skip
        if done.code != 0:
            raise CannotMove("it cannot be preprocessed")
        return done.output


def _word(path: str | os.PathLike[str]) -> str:
    return ninja.shell_words([os.fspath(path)])
