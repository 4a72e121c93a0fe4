"""The plugin that finishes precompiled headers: compiled with the user's own g++ at first use, tried, and kept.

``<cache>/plugins/<digest>/`` holds it, named by the compiler's and the source's content. A compiler that takes no
plugins, or with which the plugin does not do its work, gets ordinary precompiled headers; ``reasons`` says why.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from pathlib import Path

from warmcc import digest
from warmcc.daemon.process import Runner
from warmcc.daemon.profiles.pch import Finish
from warmcc.daemon.toolchain import Toolchain

log = logging.getLogger(__name__)

SOURCE = Path(__file__).parents[1] / "native" / "finish.cc"
LINE = "#pragma warmcc finish"
_SECONDS = 120.0

# Compiled with a finished PCH of the first, the second must find a template's body in it, and run.
_PRELUDE = (
    "#include <vector>\ntemplate <class T> T twice(T x) { return x + x; }\ninline int four() { return twice(2); }\n"
)
_UNIT = "int main() { std::vector<int> v{four()}; return v[0] == 4 ? 0 : 1; }\n"


class Plugins:
    """The plugins of all compilers. Methods are called on the event loop."""

    def __init__(self, root: Path, runner: Runner) -> None:
        self._root = root
        self._runner = runner
        self._found: dict[str, Finish | None] = {}
        self.reasons: dict[str, str] = {}

    async def finish(self, toolchain: Toolchain) -> Finish | None:
        """What makes this compiler finish a PCH; None when it cannot, for one of ``reasons``."""
        if toolchain.digest in self._found:
            found = self._found[toolchain.digest]
            if found is None or Path(found.options[0].partition("=")[2]).exists():
                return found
        try:
            made = await self._make(toolchain)
            self._found[toolchain.digest] = Finish([f"-fplugin={made}"], LINE)
        except (OSError, RuntimeError) as error:
            self._found[toolchain.digest] = None
            self.reasons[toolchain.version] = str(error)
            log.warning("precompiled headers of %s are not finished: %s", toolchain.version, error)
        return self._found[toolchain.digest]

    async def _make(self, toolchain: Toolchain) -> Path:
        """Compile and try the plugin, or find one that has been. Raises OSError, RuntimeError."""
        if toolchain.family != "gcc":
            raise RuntimeError("this compiler takes no plugins of GCC's")
        place = self._root / digest.of_value([toolchain.digest, digest.of_file(SOURCE)])
        made, total = place / "finish.so", place / "finish.so.sum"
        if made.exists() and total.exists() and digest.of_file(made) == total.read_text():
            return made
        self._root.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=self._root))
        try:
            await self._run(toolchain, ["-shared", "-fPIC", "-fno-rtti", "-O1", str(SOURCE), "-o", "finish.so"], draft)
            await self._try(toolchain, draft)
            (draft / "finish.so.sum").write_text(digest.of_file(draft / "finish.so"))
            shutil.rmtree(place, ignore_errors=True)
            draft.rename(place)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return made

    async def _try(self, toolchain: Toolchain, folder: Path) -> None:
        """Finish a small PCH, use it without the plugin, and run what comes of it."""
        (folder / "try.h").write_text(f"{_PRELUDE}{LINE}\n")
        (folder / "try.cpp").write_text(_UNIT)
        plugin = f"-fplugin={folder / 'finish.so'}"
        await self._run(toolchain, [plugin, "-Werror", "-x", "c++-header", "try.h", "-o", "try.h.gch"], folder)
        use = ["-Winvalid-pch", "-Werror=invalid-pch", "-include", "try.h", "try.cpp", "-o", "try"]
        await self._run(toolchain, use, folder)
        await self._run(None, ["./try"], folder)

    async def _run(self, toolchain: Toolchain | None, words: list[str], folder: Path) -> None:
        argv = [*(toolchain.argv if toolchain else []), *words]
        environment = {"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C.UTF-8", "TMPDIR": str(folder)}
        done = await self._runner.run(argv, cwd=folder, environment=environment, timeout=_SECONDS)
        if done.code != 0:
            raise RuntimeError(f"{' '.join(argv)}: {done.output.strip()[-500:] or f'exit status {done.code}'}")
