"""The host's side of a CUDA prelude: what cudafe++ writes of torch's real headers, as a finished
precompiled header.

That text is the same for every unit, so g++ reads it once, and then only compiles what cudafe++
writes of the unit itself. The text comes first (``host_text.py``): units can be judged by it, and
their front ends run, while g++ still precompiles it.

On disk, in ``<cache>/cuda/host/<id>/``: ``prelude.h``, ``prelude.h.gch`` and ``profile``, as for
any precompiled header (see ``pch/pch.py``). ``includes`` of its record are the files that the text
comes from.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warmcc import digest
from warmcc.daemon.closure.closure import ChangedDuringBuild, Closure, Closures
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.step_cache import StepCache
from warmcc.daemon.cuda.warm import host_text
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.host_text import Recipe, Run, Said
from warmcc.daemon.pch.pch import Record, fingerprint, read_record, write_record
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain.flags import optimises

# What the host's compiler sees in front of a unit: tensors, autograd, operators, and CUDA's side of
# them.
KEPT = 8  # on disk beside those in use, each several hundred MB
_SAID = "said"
_UNNAMED = re.compile(rf"using namespace ::([\w:]+)::_GLOBAL__N_{dryrun.NO_MODULE_ID};")


@dataclass(frozen=True, eq=False)
class HostPrelude:
    """One whose text is there: the header to force in, the files that it comes from, the
    namespaces that have an unnamed one in them, what its headers ``said``, all files that were read
    for it, and the names by which these may be included; ``making``, which ends when it is
    precompiled; names of files in its strings that are ``others`` for this caller, and the closure
    ``as_made``, where the caller's files are not those that it was made of."""

    header: Path
    files: frozenset[str]
    unnamed: list[str]
    said: Said
    closure: Closure
    read: frozenset[str]
    names: frozenset[str]
    making: Making
    others: frozenset[str] = frozenset()
    as_made: Closure | None = None

    def holds(self, closures: Closures) -> bool:
        """Whether its headers say what they said: the caller's, and those that it was made of,
        with which it would be made again in its place."""
        made = self.closure if self.as_made is None else self.as_made
        return closures.holds(self.closure) and (made is self.closure or closures.holds(made))

    def is_hidden_by(self, folders: list[str]) -> bool:
        """Whether one of its headers could be found in one of these folders."""
        return any(host_text.hides(folder, self.names) for folder in folders)


class Making:
    """The way from a text to a precompiled header. ``sha256`` is known at its end."""

    def __init__(self, haste: Haste) -> None:
        self.haste = haste
        self.text: asyncio.Task[HostPrelude] | None = None
        self.precompiled: asyncio.Task[str] | None = None
        self._sha256 = ""

    @classmethod
    def done(cls, sha256: str) -> Making:
        """That of one that was found."""
        made = cls(Haste())
        made._sha256 = sha256
        return made

    @property
    def is_done(self) -> bool:
        if (work := self.precompiled) is None or not work.done():
            return bool(self._sha256)
        return not work.cancelled() and work.exception() is None

    async def finish(self) -> str:
        """Wait for the end of it: the digest of the precompiled form. Raises RuntimeError."""
        if not self._sha256:
            assert self.precompiled is not None
            # not await: whoever is cancelled while it awaits a task cancels that as well
            await asyncio.wait([self.precompiled])
            try:
                self._sha256 = self.precompiled.result()
            except (OSError, ChangedDuringBuild, asyncio.CancelledError) as error:
                raise RuntimeError(f"the host's prelude: {error}") from error
        return self._sha256


class Hosts:
    """Builds and keeps them. ``in_use`` gives the folders of those that must not go."""

    def __init__(
        self, root: Path, closures: Closures, runner: Runner, *, steps: StepCache, timeout: float,
        in_use: Callable[[], set[Path]],
    ) -> None:  # fmt: skip
        self._root = root
        self._closures = closures
        self._runner = runner
        self._steps = steps
        self._timeout = timeout
        self._in_use = in_use
        self._read: dict[Path, tuple[str, object]] = {}  # → the digest, and how the file looked
        self.names: frozenset[str] = frozenset()  # of the last one, as a guess at those of others
        self._making: dict[str, Making] = {}

    def open(self) -> None:
        """Remove what an earlier daemon did not finish."""
        for folder in self._root.glob("*"):
            if not (folder / "profile").exists():
                shutil.rmtree(folder, ignore_errors=True)

    async def get(self, recipe: Recipe, haste: Haste, *, kept: bool = False) -> HostPrelude | None:
        """The one of a recipe, made if need be, once its text is there; with ``kept`` None in
        place of that. Raises OSError, RuntimeError, ChangedDuringBuild."""
        folder = self._root / recipe.key
        making = self._making.get(recipe.key)
        if making is None:
            if (record := await asyncio.to_thread(self._intact, folder)) is not None:
                (folder / "profile").touch()
                found = await asyncio.to_thread(self._prelude, recipe, record.closure)
                return self._known(found, Making.done(record.sha256))
            making = self._making.get(recipe.key)  # begun meanwhile
        if making is None:
            if kept:
                return None
            making = self._begin(recipe, folder, haste)
        haste.reaches(making.haste)
        assert making.text is not None
        if kept and not making.text.done():
            return None
        await asyncio.wait([making.text])  # as in Making.finish
        return making.text.result()

    def _begin(self, recipe: Recipe, folder: Path, haste: Haste) -> Making:
        making = self._making[recipe.key] = Making(haste)
        making.text = asyncio.create_task(self._make_text(recipe, folder, making))
        making.precompiled = asyncio.create_task(self._precompile(recipe, folder, making))

        def ended(task: asyncio.Task[str]) -> None:
            self._making.pop(recipe.key, None)
            if not task.cancelled():
                task.exception()  # told by whoever waits

        making.precompiled.add_done_callback(ended)
        return making

    async def close(self) -> None:
        """End what is being made."""
        tasks = [
            task
            for making in self._making.values()
            for task in (making.text, making.precompiled)
            if task is not None
        ]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _run(self, recipe: Recipe, folder: Path, making: Making) -> Run:
        environment = {**recipe.environment, "TMPDIR": str(folder)}
        return Run(self._runner, folder, environment, making.haste, self._timeout)

    async def _make_text(self, recipe: Recipe, folder: Path, making: Making) -> HostPrelude:
        await asyncio.to_thread(shutil.rmtree, folder, True)
        folder.mkdir(parents=True)
        marker = Marker.take(folder)
        run = self._run(recipe, folder, making)
        text, said = await host_text.make(recipe, run, self._steps)
        said.write(folder / _SAID)
        if recipe.finish is not None:
            text = host_text.finished(text, recipe.finish.line)
        (folder / "prelude.h").write_text(text, encoding="utf-8", errors="surrogateescape")
        read = host_text.read(folder)
        closure = await asyncio.to_thread(
            self._closures.record, read, toolchain_roots=recipe.roots,
            include_dirs=recipe.searched, started=marker, ignore=[str(self._root)],
        )  # fmt: skip
        paths = "\n".join(path for path in read if path.startswith("/"))
        (folder / "dependencies").write_text(paths, encoding="utf-8", errors="surrogateescape")
        return self._known(await asyncio.to_thread(self._prelude, recipe, closure), making)

    async def _precompile(self, recipe: Recipe, folder: Path, making: Making) -> str:
        assert making.text is not None
        await asyncio.wait([making.text])
        prelude = making.text.result()
        run = self._run(recipe, folder, making)
        program, *words = host_text.header_words(recipe.plan)
        finish = recipe.finish
        options = [] if finish is None else [*finish.options]
        if finish is not None and not optimises(words):
            options += finish.letting_go
        made = ["-x", "c++-header", "prelude.h", "-o", "new.gch"]
        await run([program, *options, *words, *made])
        record = await asyncio.to_thread(self._keep, recipe, folder, prelude)
        await asyncio.to_thread(self._prune, {folder, *self._in_use()})
        return record.sha256

    def _keep(self, recipe: Recipe, folder: Path, prelude: HostPrelude) -> Record:
        made = folder / "new.gch"
        sha256 = digest.of_file(made)
        made.rename(folder / "prelude.h.gch")
        kept = {folder / name for name in ("prelude.h", "prelude.h.gch", "dependencies", _SAID)}
        for scratch in set(folder.iterdir()) - kept:
            scratch.unlink()
        stat = fingerprint(folder / "prelude.h.gch")
        headers, finished = [*recipe.headers, *recipe.extras], recipe.finish is not None
        record = Record([], headers, finished, sha256, stat, sorted(prelude.files), prelude.closure)
        write_record(folder, record)
        self._read[folder] = (sha256, stat)
        return record

    def _prelude(self, recipe: Recipe, closure: Closure) -> HostPrelude:
        """One of which the text is there."""
        folder = self._root / recipe.key
        listed = (folder / "dependencies").read_text(encoding="utf-8", errors="surrogateescape")
        paths = listed.split("\n")
        header = folder / "prelude.h"
        text = header.read_text(encoding="utf-8", errors="surrogateescape")
        return HostPrelude(
            header, levels.files(text), sorted(set(_UNNAMED.findall(text))),
            Said.read(folder / _SAID), closure, frozenset(paths),
            host_text.names(paths, recipe.searched), Making(Haste()),
        )  # fmt: skip

    def _known(self, prelude: HostPrelude, making: Making) -> HostPrelude:
        self.names = prelude.names
        return dataclasses.replace(prelude, making=making)

    def _prune(self, in_use: set[Path]) -> None:
        """Remove all but those in use, and the ones used last."""
        kept = (path for path in self._root.glob("*/profile") if path.parent not in in_use)
        dated = {path.parent: path.stat().st_mtime for path in kept}
        for folder in sorted(dated, key=lambda folder: dated[folder])[:-KEPT]:
            shutil.rmtree(folder, ignore_errors=True)

    def _intact(self, folder: Path) -> Record | None:
        """The record of one that is there, if its file is what it was and its headers still are.
        The file is read once: it takes a second."""
        record, made = read_record(folder), folder / "prelude.h.gch"
        try:
            if record is None or not (folder / _SAID).exists():
                return None
            look = (record.sha256, fingerprint(made))
            if look != self._read.get(folder) and digest.of_file(made) != record.sha256:
                return None
        except OSError:
            return None
        self._read[folder] = look
        return record if self._closures.holds(record.closure) else None
