"""Find the object of a C++ source that was compiled in another folder.

``pip`` unpacks an archive into a new folder each time, and a checkout has a folder for each branch.
What g++ makes of the same files there differs in the names of files alone (``__FILE__``, ``-g``),
if nothing else depends on these: the preprocessed text tells (``said_paths.py``), and the names are
replaced in the object (``object_strings.py``). All files below the folder must be what they were,
by content, and those beside it must be the very same. No file may name either folder, as what it
asks for there is not what the build in the other one would read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from pathlib import Path
from typing import Any

import msgspec

from warmcc import digest
from warmcc.daemon.build.elsewhere import object_strings, said_paths
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.plan import keys, requested
from warmcc.daemon.store import Result, Store
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain, ninja, shell
from warmcc.request import Request

log = logging.getLogger(__name__)

_FORMAT = 1
_FOLDER = "folder"  # in a ``meta``: that of the build
_ANY_FOLDER = "/(its folder)"
# Below a folder of the system's there is more than one project
_PLAIN = re.compile(r"(?:/[\w.+-]+){2,}", re.A)
# Names that are compressed in the object, and flags that decide by a part of a name
_HIDES = re.compile(
    r"-flto.*|-gz.*|.*compress-debug-sections.*|-finstrument-functions-exclude.*|-fcanon-prefix-map"
)
_PREFIX_MAP = re.compile(r"-f\w+-prefix-map=([\w/.+-]+)=[\w/.+-]*")
_KNOWN = 1000  # verdicts in memory
_SECONDS = 120.0


class Elsewhere:
    """Keeps and finds them. One per daemon."""

    def __init__(
        self, store: Store, closures: Closures, runner: Runner, permits: Permits,
        counters: Counters,
    ) -> None:  # fmt: skip
        self._store = store
        self._closures = closures
        self._runner = runner
        self._permits = permits
        self._counters = counters
        # Why an object cannot be taken, or None, by its key, its content and the other folder
        self._reasons: dict[tuple[str, str, str], str | None] = {}

    def keep(self, request: Request, toolchain: Toolchain, result: Result, made: Path) -> None:
        """Have an object found in other folders, too, where the store has room."""
        if (folder := _folder(request, toolchain)) is not None:
            key = _key(request, toolchain, folder)
            meta = {**result.meta, _FOLDER: folder}
            with contextlib.suppress(OSError):
                self._store.publish("unit", key, made, "", result.closure, meta)

    async def find(
        self, request: Request, toolchain: Toolchain, key: str, tree: Path
    ) -> tuple[Result, Path] | None:
        """The object of a request, made of one in another folder and kept under ``key``.
        ``tree`` is a folder for what is written meanwhile. Raises OSError."""
        if (folder := _folder(request, toolchain)) is None:
            return None
        of_any = _key(request, toolchain, folder)
        for result in await asyncio.to_thread(self._store.results, "unit", of_any):
            old = result.meta.get(_FOLDER, folder)
            closure = _renamed_closure(result.closure, old, folder)
            if os.path.commonpath([old, folder]) in (old, folder):
                continue
            if not await asyncio.to_thread(self._closures.holds, closure):
                continue
            known = of_any, result.file, old
            if known not in self._reasons:
                if len(self._reasons) > _KNOWN:
                    self._reasons.clear()
                text = await self._preprocessed(request, toolchain, tree)
                self._reasons[known] = await asyncio.to_thread(_why_not, text, closure, folder, old)
            if (reason := self._reasons[known]) is None:
                try:
                    return await asyncio.to_thread(
                        self._write, request, key, result, closure, old, folder, tree
                    )
                except object_strings.CannotMove as error:
                    reason = self._reasons[known] = str(error)
            self._counters.elsewhere[reason] += 1
            return None
        return None

    def _write(
        self, request: Request, key: str, result: Result, closure: Closure, old: str, new: str,
        tree: Path,
    ) -> tuple[Result, Path] | None:  # fmt: skip
        """Raises OSError, CannotMove."""
        if (content := self._store.content(result)) is None:
            return None
        place = tree / "moved.o"
        place.write_bytes(object_strings.moved(content, old, new))
        meta = _renamed(result.meta, old, new)
        del meta[_FOLDER]
        meta["way"] = f"of the same source in another folder ({result.meta['way']})"
        self._counters.elsewhere["used"] += 1
        log.info("%s is that of the same source in %s", request.module_name, old)
        return self._store.publish("artifact", key, place, request.module_name, closure, meta)

    async def _preprocessed(
        self, request: Request, toolchain: Toolchain, tree: Path
    ) -> bytes | None:
        """The request's source, preprocessed; None where that fails. Raises OSError."""
        text = tree / "preprocessed.ii"
        compiler = ninja.shell_words(toolchain.argv)
        source, made = ninja.shell_words([request.sources[0]]), ninja.shell_words([str(text)])
        command = f"{compiler} {' '.join(request.extra_cflags)} -E {source} -o {made}"
        async with self._permits.hold(Share(self, 1)):
            done = await self._runner.run(
                ["/bin/sh", "-c", shell.decoded(command)],
                cwd=Path(requested.workdir(request) or tree),
                environment={**requested.build_environment(request), "TMPDIR": str(tree)},
                timeout=_SECONDS, writes=[tree],
            )  # fmt: skip
        return await asyncio.to_thread(text.read_bytes) if done.code == 0 else None


def _why_not(text: bytes | None, closure: Closure, folder: str, old: str) -> str | None:
    """Why an object of the other folder cannot be taken; None where it can. Raises OSError."""
    if text is None:
        return "it cannot be preprocessed"
    names = [name.encode() for name in (folder, old)]
    contents = (Path(path).read_bytes() for path in closure.files)
    if names[1] in text or any(name in content for content in contents for name in names):
        return "a file names its folder"
    return said_paths.why_it_depends(text, folder)


def _folder(request: Request, toolchain: Toolchain) -> str | None:
    """The folder below which everything of a request's project is; None where there is none, or
    where an object may depend on it in other ways."""
    if request.call != "compile" or toolchain.family != "gcc" or len(request.sources) != 1:
        return None
    if requested.with_cuda(request) or request.cpp_sources or request.extra_ldflags:
        return None
    words = " ".join(request.extra_cflags).split()
    if any(_HIDES.fullmatch(word) for word in words):
        return None
    places = [os.path.dirname(request.sources[0]), request.build_directory]
    folder = os.path.commonpath([place for place in places if place])
    theirs = [*toolchain.roots, toolchain.torch_dir]
    if not _PLAIN.fullmatch(folder) or any(
        os.path.commonpath([folder, root]) in (folder, root) for root in theirs if root
    ):
        return None
    for word in words:
        if "prefix-map" in word:
            # One that begins above the folder leaves names which do not have the folder's in front
            match = _PREFIX_MAP.fullmatch(word)
            if match is None or os.path.commonpath([folder, match[1]]) != folder:
                return None
    return folder


def _key(request: Request, toolchain: Toolchain, folder: str) -> str:
    """The key of a request, whatever the folder is called."""
    anywhere = _renamed(msgspec.to_builtins(request), folder, _ANY_FOLDER)
    same = keys.request_key(msgspec.convert(anywhere, Request), toolchain)
    return digest.of_value([_FORMAT, "in any folder", same])


def _renamed(value: Any, old: str, new: str) -> Any:
    """Plain values in whose strings a folder has another name.

    >>> _renamed({"flags": ["-I/p/a", "-I/p", "-I/pq"]}, "/p", "/r")
    {'flags': ['-I/r/a', '-I/r', '-I/pq']}
    """
    if isinstance(value, str):
        return re.sub(re.escape(old) + r"(?![\w.+~@%-])", lambda _: new, value)
    if isinstance(value, list):
        return [_renamed(one, old, new) for one in value]
    if isinstance(value, dict):
        return {name: _renamed(one, old, new) for name, one in value.items()}
    return value


def _renamed_closure(closure: Closure, old: str, new: str) -> Closure:
    """What an object depends on when its folder is another one."""

    def renamed(path: str) -> str:
        return new + path[len(old) :] if path == old or path.startswith(old + "/") else path

    guards = [
        msgspec.structs.replace(
            guard, folders={renamed(path): names for path, names in guard.folders.items()}
        )
        for guard in closure.guards
    ]
    files = {renamed(path): content for path, content in closure.files.items()}
    return Closure(files, closure.headers, sorted(map(renamed, closure.absent)), guards)
