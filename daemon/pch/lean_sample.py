"""Samples of what was built behind a lean prelude.
They are compiled again as stock would, to assembler, in which the user's functions must be the
same.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from warmcc import assembly
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import ninja, shell
from warmcc.daemon.verify.sampling import Inputs

_SECONDS = 300.0


@dataclass(frozen=True)
class LeanSample:
    """One unit: its text behind the lean prelude, stock's text, and how both are compiled.
    Without a ``prelude`` its headers are part of the text."""

    name: str
    maker: str
    inputs: Inputs
    compiler: list[str]
    flags: str
    environment: dict[str, str]
    prelude: Path | None
    lean: str
    stock: str
    source: str
    runner: Runner
    kind: str = "lean"

    async def differing(self, folder: Path) -> list[str]:
        """Functions of the user that are not the same. Raises OSError, RuntimeError."""
        lean = await self._assemble(folder, self.lean, self.prelude)
        stock = await self._assemble(folder, self.stock, None)
        found = assembly.differing(lean, stock, self.source)
        if found and stock != await self._assemble(folder, self.stock, None):
            raise RuntimeError("the compiler's output differs each time")
        return found

    async def _assemble(self, folder: Path, text: str, prelude: Path | None) -> str:
        """The unit as assembler text. Raises OSError, RuntimeError."""
        (folder / "main.cpp").write_text(text, encoding="utf-8", newline="")
        include = f"-include {ninja.shell_words([str(prelude)])}" if prelude is not None else ""
        compiler = ninja.shell_words(self.compiler)
        command = shell.decoded(f"{compiler} {include} {self.flags} -S main.cpp -o main.s")
        with self.runner.background.step() as step:
            done = await self.runner.run(
                ["/bin/sh", "-c", command], cwd=folder,
                environment={**self.environment, "TMPDIR": str(folder)}, timeout=_SECONDS,
                aside=True, step=step,
            )  # fmt: skip
        if done.code != 0:
            raise RuntimeError(done.output[-1000:])
        return (folder / "main.s").read_text(errors="replace")
