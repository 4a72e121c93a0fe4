"""Samples of CUDA units that warm state made: nvcc itself builds one again. The PTX must be the
same byte for byte, up to the module's own name in it, and the object must define the same
symbols."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from warmcc import module_names
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.verify.sampling import Inputs

_SECONDS = 600.0
_UNITS_FILE = re.compile(rf'^(\s*\.file\s+\d+\s+")[^"]*/(?={re.escape(dryrun.UNIT)}")', re.M)


@dataclass(frozen=True)
class Compared:
    """What is compared: PTX by the name of its file, and the symbols that an object defines for
    others.
    """

    ptx: dict[str, str]
    symbols: frozenset[str]


def differing(warm: Compared, exact: Compared) -> list[str]:
    """What is not the same: names of PTX files and of symbols.

    >>> exact = Compared({"a.ptx": "y"}, frozenset("fg"))
    >>> differing(Compared({"a.ptx": "x"}, frozenset("f")), exact)
    ['a.ptx', 'g']
    """
    names = sorted(warm.ptx.keys() | exact.ptx.keys())
    return [name for name in names if warm.ptx.get(name) != exact.ptx.get(name)] + sorted(
        warm.symbols ^ exact.symbols
    )


async def read(folder: Path, made: Path, environment: dict[str, str], runner: Runner) -> Compared:
    """What was made in a folder; ``made`` is the object. Raises OSError."""
    texts = {path.name: path.read_text(errors="replace") for path in folder.rglob("*.ptx")}
    ptx = {name: module_names.without(_UNITS_FILE.sub(r"\1", text)) for name, text in texts.items()}
    words = ["nm", "-g", "--defined-only", "-P", str(made)]
    done = await runner.run(
        words, cwd=folder, environment=environment, timeout=60.0, reads=[made], writes=[]
    )
    # Weak symbols are inline functions of headers: the object of a finished precompiled header may
    # have fewer.
    rows = (line.split() for line in module_names.without(done.output).splitlines())
    strong = {row[0] for row in rows if len(row) > 1 and row[1] in "TDBR"}
    return Compared(ptx, frozenset(strong))


@dataclass(frozen=True)
class CudaSample:
    """One unit: its text, the words with which nvcc compiles it, and what was made of it."""

    name: str
    maker: str
    inputs: Inputs
    text: str
    words: list[str]
    environment: dict[str, str]
    made: Compared
    runner: Runner
    kind: str = "CUDA"

    async def differing(self, folder: Path) -> list[str]:
        """Files and symbols that are not what nvcc makes. Raises OSError, RuntimeError."""
        exact = await self._exact(folder)
        found = differing(self.made, exact)
        if found and differing(exact, await self._exact(folder)):
            raise RuntimeError("nvcc makes something else of it each time")
        return found

    async def _exact(self, folder: Path) -> Compared:
        (folder / dryrun.UNIT).write_text(self.text, encoding="utf-8", newline="")
        words = [*self.words, "--keep", "-c", dryrun.UNIT, "-o", "exact.o"]
        environment = {**self.environment, "TMPDIR": str(folder)}
        with self.runner.background.step() as step:
            done = await self.runner.run(
                words, cwd=folder, environment=environment, timeout=_SECONDS, aside=True, step=step
            )
        if done.code != 0:
            raise RuntimeError(done.output[-1000:])
        return await read(folder, folder / "exact.o", self.environment, self.runner)
