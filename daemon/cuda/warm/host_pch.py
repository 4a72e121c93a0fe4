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
from warmcc.daemon.pch import lean
from warmcc.daemon.pch.pch import Finish, Record, fingerprint, read_record, write_record
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import ninja
from warmcc.daemon.toolchain.flags import optimises

log = logging.getLogger(__name__)

# What the host's compiler sees in front of a unit: tensors, autograd, operators, and CUDA's side of
# them.
HEADERS = (
    *lean.TORCH, "ATen/Dispatch.h", "ATen/AccumulateType.h", "ATen/cuda/CUDAContext.h", "ATen/cuda/Exceptions.h",
    "c10/cuda/CUDAGuard.h", "c10/cuda/CUDAStream.h", "c10/cuda/CUDAException.h",
)  # fmt: skip

KEPT = 6  # on disk beside those in use, each several hundred MB
_EXTRAS = '# 1 "warmcc.extras"\n'  # where they begin
_UNNAMED = re.compile(rf"using namespace ::([\w:]+)::_GLOBAL__N_{dryrun.NO_MODULE_ID};")


@dataclass(frozen=True)
class HostPrelude:
    """A finished one: the header to force in, the digest of its precompiled form, the files that it
    comes from, the namespaces that have an unnamed one in them, all files that were read for it,
    and the first parts of the names by which these may be included."""

    header: Path
    sha256: str
    files: frozenset[str]
    unnamed: list[str]
    closure: Closure
    read: frozenset[str]
    names: frozenset[str]


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
        self._read: dict[
            Path, tuple[str, object]
        ] = {}  # → the digest of its file, and how that looked

    async def get(
        self, plan: dryrun.NvccPlan, toolchain_digest: str, roots: list[str], searched: list[str],
        environment: dict[str, str], finish: Finish | None, headers: tuple[str, ...], extras: tuple[str, ...], *,
        kept: bool = False,
    ) -> HostPrelude | None:  # fmt: skip
        """The one of ``headers`` and then ``extras`` for a plan, built if need be; with ``kept``
        None in place of that. Templates of the extras are not finished: a unit may specialise them,
        as what nvcc writes of a kernel's template does.

        Raises OSError, RuntimeError, ChangedDuringBuild.
        """
        compile_words = header_words(plan)
        commands = [plan.preprocess.words, plan.cudafe.words, compile_words]
        key = digest.of_value([toolchain_digest, commands, headers, extras])
        folder = self._root / key
        record = await asyncio.to_thread(self._intact, folder)
        if record is None and kept:
            return None
        if record is None:
            await asyncio.to_thread(shutil.rmtree, folder, True)
            folder.mkdir(parents=True)
            marker = Marker.take(folder)
            environment = {**environment, "TMPDIR": str(folder)}
            text = await self._text(folder, plan, headers, extras, environment)
            line = f"{finish.line}\n" if finish else ""
            text = text.replace(_EXTRAS, line + _EXTRAS, 1)
            (folder / "prelude.h").write_text(text, encoding="utf-8", errors="surrogateescape")
            options = [] if finish is None else [*finish.options]
            if finish is not None and not optimises(compile_words):
                options += finish.letting_go
            words = [
                compile_words[0],
                *options,
                *compile_words[1:],
                "-x",
                "c++-header",
                "prelude.h",
                "-o",
                "new.gch",
            ]
            await self._run(words, folder, environment)
            names = [*headers, *extras]
            record = await asyncio.to_thread(
                self._keep, folder, marker, roots, searched, names, finish is not None
            )
        (folder / "profile").touch()
        await asyncio.to_thread(self._prune, {folder, *self._in_use()})
        paths = (folder / "dependencies").read_text(encoding="utf-8").split("\n")
        text = (folder / "prelude.h").read_text(encoding="utf-8", errors="surrogateescape")
        unnamed = sorted(set(_UNNAMED.findall(text)))
        header, files = folder / "prelude.h", frozenset(record.includes)
        parts = await asyncio.to_thread(_first_parts, paths, searched)
        return HostPrelude(
            header, record.sha256, files, unnamed, record.closure, frozenset(paths), parts
        )

    async def _text(
        self, folder: Path, plan: dryrun.NvccPlan, headers: tuple[str, ...], extras: tuple[str, ...],
        environment: dict[str, str],
    ) -> str:  # fmt: skip
        """What cudafe++ makes of the headers."""
        parts = [
            levels.includes(headers),
            _EXTRAS,
            "typedef int warmcc_extras;\n",
            levels.includes(extras),
        ]
        (folder / levels.MAIN).write_text("".join(parts) + levels.BEGINNING, encoding="utf-8")
        text = plan.preprocess.output
        await self._run(
            [*plan.preprocess.options, "-MD", "-MF", "host.d", levels.MAIN, "-o", text],
            folder,
            environment,
        )
        (folder / dryrun.MODULE_ID).write_text(dryrun.NO_MODULE_ID, encoding="utf-8")
        await self._run(plan.cudafe.words, folder, environment)
        written = (folder / plan.cudafe.text).read_text(encoding="utf-8", errors="surrogateescape")
        head, found, _ = written.partition(f'# 1 "{levels.BEGIN}"\n')
        if not found:
            raise RuntimeError("cudafe++ does not write where a unit begins")
        return head

    async def _run(self, words: list[str], folder: Path, environment: dict[str, str]) -> None:
        with self._runner.background.step() as step:
            done = await self._runner.run(
                words,
                cwd=folder,
                environment=environment,
                timeout=self._timeout,
                aside=True,
                step=step,
            )
        if done.code != 0:
            raise RuntimeError(f"{words[0]}: {done.output[-2000:]}")

    def _keep(
        self,
        folder: Path,
        marker: Marker,
        roots: list[str],
        searched: list[str],
        names: list[str],
        finished: bool,
    ) -> Record:
        read = [
            path
            for path in ninja.dependencies(folder / "host.d", folder)
            if not path.startswith(str(folder))
        ]
        closure = self._closures.record(
            read,
            toolchain_roots=roots,
            include_dirs=searched,
            started=marker,
            ignore=[str(self._root)],
        )
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


def _first_parts(paths: list[str], searched: list[str]) -> frozenset[str]:
    """Of the names by which files may be included, with the folders that are searched.

    >>> sorted(_first_parts(["/t/include/ATen/ops/add.h"], ["/t/include", "/t/include/ATen"]))
    ['ATen', 'ops']
    """
    folders = tuple(f"{folder.rstrip('/')}/" for folder in searched)
    return frozenset(
        path[len(folder) :].split("/", 1)[0]
        for folder in folders
        for path in paths
        if path.startswith(folder)
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
