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
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from warmcc import digest
from warmcc.config import Config
from warmcc.daemon.build.elsewhere import object_strings, said_paths
from warmcc.daemon.build.elsewhere.object_strings import CannotMove
from warmcc.daemon.build.elsewhere.preprocessing import Preprocessing
from warmcc.daemon.build.work import Found, Outcome, Work
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.plan import ways
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.ways import Unit
from warmcc.daemon.store import Result, Store
from warmcc.daemon.system.counters import Counters
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import ninja
from warmcc.request import Request

log = logging.getLogger(__name__)
T = TypeVar("T")

_FORMAT = 1
# In a ``meta``: of the build that made an object
_FOLDER, _OUTPUT, _COMMAND = "folder", "output", "command"
_ANY_FOLDER = "/(its folder)"
# Below a folder of the system's there is more than one project
_PLAIN = re.compile(r"(?:/[\w.+-]+){2,}", re.A)
# Names that are compressed in the object, and flags that decide by a part of a name
_HIDES = re.compile(
    r"-flto|-gz|-frandom-seed|compress-debug-sections|-finstrument-functions-exclude|-fcanon-prefix-map"
)
_NAMES_IN_DEVICE_CODE = re.compile(
    r"(?:^|,)--?(?:g(?!en|c|pu)|G|debug|device-debug|lineinfo|generate-line-info|src-in-ptx"
    r"|source-in-ptx|rdc|relocatable|dc|device-c|dlto|keep|optix)"
)
_PREFIX_MAP = re.compile(r"-f\w+-prefix-map=(/[\w/.+-]*)=[\w/.+-]*")
_KNOWN = 1000  # reasons in memory


@dataclass(frozen=True)
class _Other:
    """An object of the same source in the folder ``old``, which may do for the folder ``new``."""

    result: Result
    old: str
    new: str

    @cached_property
    def closure(self) -> Closure:
        """What the object depends on in the new folder."""
        theirs = self.result.closure
        guards = [
            msgspec.structs.replace(one, folders=self._paths(one.folders)) for one in theirs.guards
        ]
        links = {path: self._path(where) for path, where in self._paths(theirs.links).items()}
        absent = sorted(map(self._path, theirs.absent))
        return Closure(self._paths(theirs.files), theirs.headers, absent, guards, links)

    def _paths(self, known: dict[str, T]) -> dict[str, T]:
        return {self._path(path): value for path, value in known.items()}

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
            if said_paths.may_ask(content):
                raise CannotMove("it may use the name of a file")

    async def check_texts(self, work: Work, source: Preprocessing) -> None:
        """Raises CannotMove where other files are read than those of the closure, or where the code
        may depend on the folder; OSError."""
        texts = await source.texts()
        for text in texts:
            read = await asyncio.to_thread(said_paths.files, text)
            self._check_read(work, [path for path in read if not path.endswith((">", "//"))])
            depends = partial(said_paths.why_it_depends, for_devices=len(texts) > 1)
            if reason := await asyncio.to_thread(depends, text, self.new):
                raise CannotMove(reason)

    def _check_read(self, work: Work, paths: list[str]) -> None:
        known = {os.path.normpath(path) for path in self.closure.files}
        roots = tuple(f"{root.rstrip('/')}/" for root in work.toolchain.roots)
        for path in paths:
            whole = os.path.join(work.folder, path)
            if os.path.normpath(whole) not in known and not whole.startswith(roots):
                raise CannotMove("it reads other files")


class Elsewhere:
    """Keeps and finds them. One per daemon."""

    def __init__(
        self, config: Config, store: Store, closures: Closures, runner: Runner, permits: Permits,
        counters: Counters,
    ) -> None:  # fmt: skip
        self._enabled = config.other_folders
        self._store = store
        self._closures = closures
        self._runner = runner
        self._permits = permits
        self._counters = counters
        self._few = asyncio.Semaphore(permits.limit)  # texts are large
        # Why an object cannot be taken, by its key, its content and its folder
        self._reasons: dict[tuple[str, str, str], str] = {}

    def keep(self, work: Work, output: str) -> None:
        """Have what a flight compiled found in other folders, where the store has room.
        ``output`` is what its steps printed."""
        for unit in work.units if self._enabled else ():
            outcome, folder = work.outcome(unit), _folder(work, unit)
            if work.has(unit) or outcome.closure is None or folder is None:
                continue
            meta = {"makers": [outcome.maker], _FOLDER: folder}
            if not work.plan.links:
                meta[_OUTPUT] = output
            elif (command := ninja.maker(output, unit.object)) is not None:
                meta[_COMMAND] = command
            kept = self._store.results("unit", work.found[unit].key)
            with contextlib.suppress(OSError):
                for result in kept:
                    if result.closure == outcome.closure:
                        self._store.also("unit", _key(work, unit, folder), result, meta)

    async def fill(self, work: Work) -> str:
        """Give a flight the objects of other folders that it can have; what their compiles
        printed, or for an extension their commands."""
        units = [one for one in work.ways.stock.units if self._enabled and not work.has(one)]
        jobs = work.request.environment.get("MAX_JOBS", "")
        share = Share(work.tree, int(jobs) if jobs.isdecimal() else self._permits.limit)
        found = await asyncio.gather(*(self._find(work, unit, share) for unit in units))
        return "".join(_said(one) for one in found if one is not None)

    async def _find(self, work: Work, unit: Unit, share: Share) -> Result | None:
        if (folder := _folder(work, unit)) is None:
            return None
        key = _key(work, unit, folder)
        for result in await asyncio.to_thread(self._store.results, "unit", key):
            one = _Other(result, result.meta.get(_FOLDER, folder), folder)
            if os.path.commonpath([one.old, folder]) in (one.old, folder):
                continue
            if not await asyncio.to_thread(self._closures.holds, one.closure):
                continue
            try:
                with work.timeline.span("object of another folder"):
                    source = Preprocessing(work, unit, self._runner, self._permits, share)
                    content = await self._moved(work, source, one, key)
                    if content is not None:
                        return await asyncio.to_thread(self._take, work, unit, one, content)
            except (CannotMove, OSError) as error:
                # A file that is gone is the compiler's to tell of
                self._counters.elsewhere[getattr(error, "strerror", None) or str(error)] += 1
                return None
        return None

    async def _moved(
        self, work: Work, source: Preprocessing, one: _Other, key: str
    ) -> bytes | None:
        """The object for the new folder; None where it is gone. Raises CannotMove, OSError."""
        known = key, one.result.file, one.old
        if (reason := self._reasons.get(known)) is not None:
            raise CannotMove(reason)
        if (content := await asyncio.to_thread(self._store.content, one.result)) is None:
            return None
        try:
            moved = await asyncio.to_thread(object_strings.moved, content, one.old, one.new)
            await asyncio.to_thread(one.check_files)
            async with self._few:
                await one.check_texts(work, source)
        except CannotMove as error:
            if len(self._reasons) > _KNOWN:
                self._reasons.clear()
            self._reasons[known] = str(error)
            raise
        return moved

    def _take(self, work: Work, unit: Unit, one: _Other, content: bytes) -> Result:
        """Keep an object as the unit's own. Raises OSError."""
        place = work.tree / f"{unit.object}.moved"
        place.write_bytes(content)
        meta = _renamed(one.result.meta, one.old, one.new)
        key = work.found[unit].key
        kept, path = self._store.publish("unit", key, place, "", one.closure, meta)
        work.found[unit] = Found(key, kept, path)
        work.outcomes[unit] = Outcome(kept.closure, "".join(meta["makers"]))
        work.from_elsewhere += 1
        self._counters.elsewhere["used"] += 1
        log.info("%s is made of that in %s", unit.source, one.old)
        return kept


def _said(result: Result) -> str:
    """What the flight that takes an object says of it."""
    command = result.meta.get(_COMMAND)
    printed: str = result.meta.get(_OUTPUT, "")
    return printed if command is None else f"{ninja.REUSED}{command}\n"


def _folder(work: Work, unit: Unit) -> str | None:
    """The folder below which everything of a unit's project is; None where there is none, or where
    an object may depend on it in other ways."""
    request, toolchain = work.request, work.toolchain
    if unit.text is not None or not request.sources or toolchain.family != "gcc":
        return None
    theirs = list(filter(os.path.isabs, (*toolchain.roots, toolchain.torch_dir)))

    def is_users(folder: str) -> bool:
        is_apart = (os.path.commonpath([folder, root]) not in (folder, root) for root in theirs)
        return _PLAIN.fullmatch(folder) is not None and all(is_apart)

    places = [os.path.dirname(source) for source in request.sources]
    if request.call == "compile" and request.build_directory:
        places.append(request.build_directory)
    if not all(map(os.path.isabs, places)):
        return None
    folder = os.path.commonpath(places)
    for place in filter(os.path.isabs, request.extra_include_paths):
        wider = os.path.commonpath([folder, place])
        folder = wider if is_users(wider) else folder
    return folder if is_users(folder) and _are_plain(work, unit, folder) else None


def _are_plain(work: Work, unit: Unit, folder: str) -> bool:
    """Whether with a unit's flags the folder's name is in an object's strings alone, and whole."""
    plan = work.plan
    flags = f"{plan.cflags} {plan.post_cflags}"
    if unit.cuda:
        flags = f"{plan.cuda_cflags} {plan.cuda_post_cflags}"
    for word in flags.split():
        if _HIDES.search(word) or (unit.cuda and _NAMES_IN_DEVICE_CODE.search(word)):
            return False
        if "prefix-map" in word:
            # One that begins above the folder leaves names which do not have it in front
            match = _PREFIX_MAP.fullmatch(word)
            if match is None or os.path.commonpath([folder, match[1]]) != folder:
                return False
    return True


def _key(work: Work, unit: Unit, folder: str) -> str:
    """The key of a unit, whatever the folder is called."""

    def anywhere(value: Any) -> Any:
        return _renamed(value, folder, _ANY_FOLDER)

    request = msgspec.convert(anywhere(msgspec.to_builtins(work.request)), Request)
    plan = msgspec.convert(anywhere(msgspec.to_builtins(work.plan)), Plan)
    same = ways.identify(replace(unit, source=anywhere(unit.source)), request, plan, work.toolchain)
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
