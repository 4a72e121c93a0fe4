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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from warmcc import digest
from warmcc.daemon.build.elsewhere import object_strings, said_paths
from warmcc.daemon.build.elsewhere.object_strings import CannotMove
from warmcc.daemon.build.elsewhere.preprocessing import Preprocessing
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
    r"(?:^|,)-(?:-?g(?!en|c|pu)|G|-?lineinfo|-?device-debug|-?debug|-?source-in-ptx|src-in-ptx|rdc"
    r"|-?relocatable|dc|dlto|-?device-c|keep|-?keep|-?generate-line-info|optix)"
)
_PREFIX_MAP = re.compile(r"-f\w+-prefix-map=([\w/.+-]+)=[\w/.+-]*")
_KNOWN = 1000  # verdicts in memory


@dataclass(frozen=True)
class _Other:
    """An object of the same source in the folder ``old``, which may do for the folder ``new``."""

    result: Result
    old: str
    new: str

    @property
    def closure(self) -> Closure:
        """What the object depends on in the new folder."""
        closure, theirs = self.result.closure, self.result.closure.guards
        folders = [
            {self._path(path): names for path, names in one.folders.items()} for one in theirs
        ]
        return Closure(
            {self._path(path): content for path, content in closure.files.items()},
            closure.headers,
            sorted(map(self._path, closure.absent)),
            [
                msgspec.structs.replace(one, folders=renamed)
                for one, renamed in zip(theirs, folders, strict=True)
            ],
        )

    def _path(self, path: str) -> str:
        is_below = path == self.old or path.startswith(f"{self.old}/")
        return self.new + path[len(self.old) :] if is_below else path

    def check_files(self) -> None:
        """Raises CannotMove where a file of the project says what it is called; OSError."""
        names = [name.encode() for name in (self.old, self.new)]
        for path in self.closure.files:
            content = Path(path).read_bytes()
            if any(name in content for name in names):
                raise CannotMove("a file names its folder")
            if said_paths.asks(content):
                raise CannotMove("it uses the name of a file")

    async def check_texts(self, source: Preprocessing) -> None:
        """Raises CannotMove where the code may depend on the folder; OSError."""
        texts = await source.texts()

        def reasons() -> Iterator[str | None]:
            for text in texts:
                if self.old.encode() in text:
                    yield "a file of the other folder is read"
                yield said_paths.why_it_depends(text, self.new, for_devices=len(texts) > 1)

        if reason := await asyncio.to_thread(lambda: next(filter(None, reasons()), None)):
            raise CannotMove(reason)


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
        # Why an object cannot be taken, or None, by its key, its content and its folder
        self._verdicts: dict[tuple[str, str, str], str | None] = {}

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
            one = _Other(result, result.meta.get(_FOLDER, folder), folder)
            if os.path.commonpath([one.old, folder]) in (one.old, folder):
                continue
            if not await asyncio.to_thread(self._closures.holds, one.closure):
                continue
            source = Preprocessing(request, toolchain, tree, self._runner, self._permits)
            try:
                content = await self._moved(one, of_any, source)
            except CannotMove as error:
                self._counters.elsewhere[str(error)] += 1
                return None
            if content is not None:
                self._counters.elsewhere["used"] += 1
                log.info("%s is that of the same source in %s", request.module_name, one.old)
                return await asyncio.to_thread(self._publish, request, key, one, content, tree)
        return None

    async def _moved(self, one: _Other, key: str, source: Preprocessing) -> bytes | None:
        """The object for the new folder; None where it is gone. Raises CannotMove, OSError."""
        known = key, one.result.file, one.old
        if (reason := self._verdicts.get(known)) is not None:
            raise CannotMove(reason)
        if (content := await asyncio.to_thread(self._store.content, one.result)) is None:
            return None
        if len(self._verdicts) > _KNOWN:
            self._verdicts.clear()
        try:
            moved = await asyncio.to_thread(object_strings.moved, content, one.old, one.new)
            if known not in self._verdicts:
                await asyncio.to_thread(one.check_files)
                await one.check_texts(source)
        except CannotMove as error:
            self._verdicts[known] = str(error)
            raise
        self._verdicts[known] = None
        return moved

    def _publish(
        self, request: Request, key: str, one: _Other, content: bytes, tree: Path
    ) -> tuple[Result, Path]:
        """Raises OSError."""
        place = tree / "moved.o"
        place.write_bytes(content)
        meta = _renamed(one.result.meta, one.old, one.new)
        del meta[_FOLDER]
        meta["way"] = f"of the same source in another folder ({meta['way']})"
        return self._store.publish("artifact", key, place, request.module_name, one.closure, meta)


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
