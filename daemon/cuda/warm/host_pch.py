"""The host's side of a CUDA prelude: what cudafe++ writes of torch's real headers, as a finished
precompiled header.

That text is the same for every unit, so g++ reads it once, and then only compiles what cudafe++
writes of the unit itself.

On disk, in ``<cache>/cuda/host/<id>/``: ``prelude.h``, ``prelude.h.gch`` and ``profile``, as for
any precompiled header (see ``pch/pch.py``). ``includes`` of its record are the files that the text
comes from.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warmcc import digest
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.cuda import dryrun
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.pch import flag_reduction, lean
from warmcc.daemon.pch.pch import Finish, Record, fingerprint, read_record, write_record
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import lookups, ninja
from warmcc.daemon.toolchain.flags import optimises

log = logging.getLogger(__name__)

# What the host's compiler sees in front of a unit: tensors, autograd, operators, and CUDA's side of
# them.
HEADERS = (
    *lean.TORCH, "ATen/Dispatch.h", "ATen/AccumulateType.h", "ATen/cuda/CUDAContext.h",
    "ATen/cuda/Exceptions.h",
    "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h", "c10/cuda/CUDAException.h",
)  # fmt: skip

KEPT = 6  # on disk beside those in use, each several hundred MB
_EXTRAS = '# 1 "warmcc.extras"\n'  # where they begin
_UNNAMED = re.compile(rf"using namespace ::([\w:]+)::_GLOBAL__N_{dryrun.NO_MODULE_ID};")


@dataclass(frozen=True)
class HostPrelude:
    """A finished one: the header to force in, the digest of its precompiled form, the files that it
    comes from, the namespaces that have an unnamed one in them, all files that were read for it,
    and the names by which these may be included."""

    header: Path
    sha256: str
    files: frozenset[str]
    unnamed: list[str]
    closure: Closure
    read: frozenset[str]
    names: frozenset[str]

    def is_hidden_by(self, folders: list[str]) -> bool:
        """Whether one of its headers could be found in one of these folders."""
        return any(hides(folder, self.names) for folder in folders)


@dataclass(frozen=True)
class Recipe:
    """What one is made of: ``headers`` and then ``extras``, whose templates are not finished, as a
    unit may specialise them, and what nvcc writes of a kernel's template does. ``toolchain`` is a
    digest, ``roots`` and ``searched`` are folders: of the toolchain, and for headers."""

    plan: dryrun.NvccPlan
    toolchain: str
    roots: list[str]
    searched: list[str]
    environment: dict[str, str]
    finish: Finish | None
    headers: tuple[str, ...]
    extras: tuple[str, ...]

    @property
    def key(self) -> str:
        plan = self.plan
        commands = [plan.preprocess.words, plan.cudafe.words, header_words(plan)]
        variables = lookups.of_variables(self.environment)
        return digest.of_value(
            [self.toolchain, commands, self.headers, self.extras, *filter(None, [variables])]
        )


@dataclass(frozen=True)
class _Run:
    """Runs commands in a folder, in the background unless there is haste. Raises RuntimeError."""

    runner: Runner
    folder: Path
    environment: dict[str, str]
    haste: Haste

    async def __call__(self, words: list[str], timeout: float) -> None:
        with self.runner.background.step() as step:
            self.haste.runs(step)
            done = await self.runner.run(
                words, cwd=self.folder, environment=self.environment, timeout=timeout,
                aside=not self.haste.wanted, step=step,
            )  # fmt: skip
        if done.code != 0:
            raise RuntimeError(f"{words[0]}: {done.output[-2000:]}")


class Hosts:
    """Builds and keeps them. ``in_use`` gives the folders of those that must not go."""

    def __init__(
        self,
        root: Path,
        closures: Closures,
        runner: Runner,
        *,
        timeout: float,
        in_use: Callable[[], set[Path]],
    ) -> None:
        self._root = root
        self._closures = closures
        self._runner = runner
        self._timeout = timeout
        self._in_use = in_use
        self._read: dict[Path, tuple[str, object]] = {}  # → the digest, and how the file looked
        self.names: frozenset[str] = frozenset()  # of the last one, as a guess at those of others
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, recipe: Recipe, haste: Haste, *, kept: bool = False) -> HostPrelude | None:
        """The one of a recipe, built if need be; with ``kept`` None in place of that. Raises
        OSError, RuntimeError, ChangedDuringBuild."""
        folder = self._root / recipe.key
        record = await asyncio.to_thread(self._intact, folder)
        if record is None and kept:
            return None
        if record is None:
            async with self._locks.setdefault(recipe.key, asyncio.Lock()):
                record = await asyncio.to_thread(self._intact, folder)
                if record is None:
                    record = await self._build(recipe, folder, haste)
        (folder / "profile").touch()
        await asyncio.to_thread(self._prune, {folder, *self._in_use()})
        paths = (folder / "dependencies").read_text(encoding="utf-8").split("\n")
        text = (folder / "prelude.h").read_text(encoding="utf-8", errors="surrogateescape")
        unnamed = sorted(set(_UNNAMED.findall(text)))
        header, files = folder / "prelude.h", frozenset(record.includes)
        names = self.names = await asyncio.to_thread(_names, paths, recipe.searched)
        return HostPrelude(
            header, record.sha256, files, unnamed, record.closure, frozenset(paths), names
        )

    async def _build(self, recipe: Recipe, folder: Path, haste: Haste) -> Record:
        await asyncio.to_thread(shutil.rmtree, folder, True)
        folder.mkdir(parents=True)
        marker = Marker.take(folder)
        run = _Run(self._runner, folder, {**recipe.environment, "TMPDIR": str(folder)}, haste)
        finish = recipe.finish
        text = await self._text(recipe, run)
        line = f"{finish.line}\n" if finish else ""
        text = text.replace(_EXTRAS, line + _EXTRAS, 1)
        (folder / "prelude.h").write_text(text, encoding="utf-8", errors="surrogateescape")
        program, *words = header_words(recipe.plan)
        options = [] if finish is None else [*finish.options]
        if finish is not None and not optimises(words):
            options += finish.letting_go
        made = ["-x", "c++-header", "prelude.h", "-o", "new.gch"]
        await run([program, *options, *words, *made], self._timeout)
        return await asyncio.to_thread(self._keep, recipe, folder, marker)

    async def _text(self, recipe: Recipe, run: _Run) -> str:
        """What cudafe++ makes of the headers."""
        folder, plan = run.folder, recipe.plan
        parts = [
            levels.includes(recipe.headers), _EXTRAS, "typedef int warmcc_extras;\n",
            levels.includes(recipe.extras),
        ]  # fmt: skip
        (folder / levels.MAIN).write_text("".join(parts) + levels.BEGINNING, encoding="utf-8")
        reading = ["-MD", "-MF", "host.d", levels.MAIN, "-o", plan.preprocess.output]
        await run([*plan.preprocess.options, *reading], self._timeout)
        (folder / dryrun.MODULE_ID).write_text(dryrun.NO_MODULE_ID, encoding="utf-8")
        await run(plan.cudafe.words, self._timeout)
        written = (folder / plan.cudafe.text).read_text(encoding="utf-8", errors="surrogateescape")
        head, found, _ = written.partition(f'# 1 "{levels.BEGIN}"\n')
        if not found:
            raise RuntimeError("cudafe++ does not write where a unit begins")
        return head

    def _keep(self, recipe: Recipe, folder: Path, marker: Marker) -> Record:
        listed = ninja.dependencies(folder / "host.d", folder)
        read = [path for path in listed if not path.startswith(str(folder))]
        closure = self._closures.record(
            read, toolchain_roots=recipe.roots, include_dirs=recipe.searched, started=marker,
            ignore=[str(self._root)],
        )  # fmt: skip
        text = (folder / "prelude.h").read_text(encoding="utf-8", errors="surrogateescape")
        made = folder / "new.gch"
        sha256 = digest.of_file(made)
        made.rename(folder / "prelude.h.gch")
        (folder / "dependencies").write_text(
            "\n".join(path for path in read if path.startswith("/"))
        )
        for scratch in set(folder.iterdir()) - {
            folder / n for n in ("prelude.h", "prelude.h.gch", "dependencies")
        }:
            scratch.unlink()
        known = sorted(levels.files(text))
        stat = fingerprint(folder / "prelude.h.gch")
        names, finished = [*recipe.headers, *recipe.extras], recipe.finish is not None
        record = Record([], names, finished, sha256, stat, known, closure)
        write_record(folder, record)
        return record

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
            if record is None:
                return None
            look = (record.sha256, fingerprint(made))
            if look != self._read.get(folder) and digest.of_file(made) != record.sha256:
                return None
        except OSError:
            return None
        self._read[folder] = look
        return record if self._closures.holds(record.closure) else None


def hides(folder: str, names: frozenset[str]) -> bool:
    """Whether a folder holds a header of one of these names."""
    if not flag_reduction.any_matters([folder], frozenset(name.split("/", 1)[0] for name in names)):
        return False
    return any(os.path.exists(os.path.join(folder, name)) for name in names)


def _names(paths: list[str], searched: list[str]) -> frozenset[str]:
    """The names by which files may be included, with the folders that are searched.

    >>> sorted(_names(["/t/include/ATen/ops/add.h"], ["/t/include", "/t/include/ATen"]))
    ['ATen/ops/add.h', 'ops/add.h']
    """
    folders = tuple(f"{folder.rstrip('/')}/" for folder in searched)
    return frozenset(
        path[len(folder) :] for folder in folders for path in paths if path.startswith(folder)
    )


def header_words(plan: dryrun.NvccPlan) -> list[str]:
    """The words with which nvcc has the host's code compiled, without the file, and what is said of
    the device.
    """
    architectures = (
        "-D__CUDA_ARCH__=",
        "-D__CUDA_ARCH_LIST__=",
    )  # cudafe++'s text mentions neither
    words = [
        word for word in plan.host.options if word != "-c" and not word.startswith(architectures)
    ]
    at = words.index("-x")
    return words[:at] + words[at + 2 :]
