"""Find the object of a source that was compiled in another folder.

``pip`` unpacks an archive into a new folder each time, and a checkout has a folder for each branch.
What g++ and nvcc make of the same files there differs in the names of files alone (``__FILE__``,
``-g``), if nothing else depends on these: the preprocessed text tells (``said_paths.py``), and the
names are replaced in the object (``object_strings.py``). All files below the folder must be what
they were, by content, and those beside it must be the very same. No file may name either folder, as
what it asks for there is not what the build in the other one would read.
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
from warmcc.daemon.build.elsewhere.preprocessing import Failed, Preprocessing
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.plan import keys, requested
from warmcc.daemon.store import Result, Store
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain
from warmcc.request import Request

log = logging.getLogger(__name__)

_FORMAT = 1
_FOLDER = "folder"  # in a ``meta``: that of the build
_ANY_FOLDER = "/(its folder)"
# Below a folder of the system's there is more than one project
_PLAIN = re.compile(r"(?:/[\w.+-]+){2,}", re.A)
# Names that are compressed in the object, and flags that decide by a part of a name
_HIDES = re.compile(
    r"-flto|-gz|compress-debug-sections|-finstrument-functions-exclude|-fcanon-prefix-map"
)
_NAMES_IN_DEVICE_CODE = re.compile(
    r"(?:^|,)-(?:-?g(?!en|c)|G|-?lineinfo|-?device-debug|-?debug|-?source-in-ptx|src-in-ptx|rdc"
    r"|-?relocatable|dc|dlto|-?device-c|keep|-?keep|-?generate-line-info|optix)"
)
_PREFIX_MAP = re.compile(r"-f\w+-prefix-map=([\w/.+-]+)=[\w/.+-]*")
_KNOWN = 1000  # verdicts in memory


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
                source = Preprocessing(request, toolchain, tree, self._runner, self._permits)
                self._reasons[known] = await _why_not(source, closure, folder, old)
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


async def _why_not(source: Preprocessing, closure: Closure, folder: str, old: str) -> str | None:
    """Why an object of the other folder cannot be taken; None where it can. Raises OSError."""
    try:
        texts = await source.texts()
    except Failed as error:
        return str(error)

    def look() -> str | None:
        names = [name.encode() for name in (folder, old)]
        contents = (Path(path).read_bytes() for path in closure.files)
        if any(name in content for content in contents for name in names) or any(
            names[1] in text for text in texts
        ):
            return "a file names its folder"
        for text in texts:
            if reason := said_paths.why_it_depends(text, folder, for_devices=len(texts) > 1):
                return reason
        return None

    return await asyncio.to_thread(look)


def _folder(request: Request, toolchain: Toolchain) -> str | None:
    """The folder below which everything of a request's project is; None where there is none, or
    where an object may depend on it in other ways."""
    if request.call != "compile" or toolchain.family != "gcc" or len(request.sources) != 1:
        return None
    if request.cpp_sources or request.extra_ldflags:
        return None
    places = [os.path.dirname(request.sources[0]), request.build_directory]
    folder = os.path.commonpath([place for place in places if place])
    theirs = [root for root in (*toolchain.roots, toolchain.torch_dir) if root]
    if not _PLAIN.fullmatch(folder) or any(
        os.path.commonpath([folder, root]) in (folder, root) for root in theirs
    ):
        return None
    is_cuda = requested.with_cuda(request)
    words = " ".join(request.extra_cuda_cflags if is_cuda else request.extra_cflags).split()
    return folder if all(_is_plain(word, folder, is_cuda=is_cuda) for word in words) else None


def _is_plain(word: str, folder: str, *, is_cuda: bool) -> bool:
    """Whether with a flag the folder's name is in nothing but an object's strings, and whole."""
    if _HIDES.search(word) or (is_cuda and _NAMES_IN_DEVICE_CODE.search(word)):
        return False
    if "prefix-map" not in word:
        return True
    # One that begins above the folder leaves names which do not have the folder's in front
    match = _PREFIX_MAP.fullmatch(word)
    return match is not None and os.path.commonpath([folder, match[1]]) == folder


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
