"""An index of all names in the headers of a toolchain: what is not in it, no header mentions.

It is made once for each toolchain, in seconds, on all processors. It is kept in
``<cache>/cuda/names/<id>/names``, a name on each line, sorted: it has more than ten megabytes, and
units ask for dozens of names on the event loop. Names in comments count; a name that a header's
macro would put together does not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shlex
import shutil
import tempfile
from itertools import chain
from pathlib import Path

from warmcc import digest
from warmcc.daemon.system import bounds, resources
from warmcc.daemon.system.background import Haste
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain.identity import Toolchain

log = logging.getLogger(__name__)

_SECONDS = 120.0
_KNOWN = 3  # in memory: of all headers, with CUDA's and without, and of torch's
_FORM = 2  # of what is kept
_NAMES, _SINCE = "names", "since"  # the index, and a file as old as it
_FILES_AT_A_TIME = 400
_OF_FILES = (
    r'grep -ah "" -- "$@" | tr -cs A-Za-z0-9_ "\n" | awk "!known[\$0]++" | sort'
    r' > "$(mktemp -p "$0")"'
)
_LISTED = (
    "export LC_ALL=C; find {folders} -type f -print0"
    " | xargs -0 -n {files} -P {jobs} sh -c {of_files} {parts}"
    " && sort -m -u {parts}/* > {draft}"
)
_CHANGED = (
    "find {folders} -type f '(' -newer {since} -o -cnewer {since} ')' -print -quit 2>/dev/null"
)


class HeaderNames:
    """Those of all toolchains of a daemon, below a folder. ``reasons`` counts why a unit is not
    at a faster level."""

    def __init__(self, root: Path, runner: Runner, reasons: bounds.Reasons) -> None:
        self._root = root
        self._runner = runner
        self._reasons = reasons
        self._lock = asyncio.Lock()
        self._known: dict[str, bytes] = {}
        self._haste = Haste()
        self.are_known = False  # whether no unit for CUDA need wait, while there is one toolchain

    async def mentioned(
        self, toolchain: Toolchain, names: set[str], *, torch_alone: bool = False,
        now: bool = False,
    ) -> set[str]:  # fmt: skip
        """Those of the names that a header has in it, or one of torch's; all of them where that
        cannot be told. ``now``: as the headers are now, of which some may have changed since."""
        if not names:
            return set()
        try:
            index = await self._index(toolchain, waits=True, torch_alone=torch_alone, now=now)
        except OSError as error:
            log.warning("no index of header names, so that fewer units are warm: %s", error)
            self._reasons["no index of header names"] += 1
            return set(names)
        return {name for name in names if is_line(name.encode(), index)}

    async def mentioned_now(self, toolchain: Toolchain, names: set[str]) -> set[str]:
        """Those of the names that a header has in it now."""
        return await self.mentioned(toolchain, names, now=True)

    async def prepare(self, toolchain: Toolchain) -> None:
        """Have the index of all headers made, in the background until a unit asks for one. Why
        there is none is told then."""
        with contextlib.suppress(OSError):
            await self._index(toolchain, waits=False)

    async def _index(
        self, toolchain: Toolchain, *, waits: bool, torch_alone: bool = False, now: bool = False
    ) -> bytes:
        folders = [_of_torch(toolchain)] if torch_alone else _folders(toolchain)
        folders = list(dict.fromkeys(map(os.path.realpath, folders)))
        key = digest.of_value([_FORM, toolchain.digest, folders, _LISTED, _OF_FILES])
        if waits:
            self._haste.want()  # of what is made now, and keeps this one waiting
        async with self._lock:  # units of one package ask at the same time
            place = self._root / key
            changed = now and await self._have_changed(folders, place / _SINCE)
            if changed or key not in self._known:
                self._haste = Haste(wanted=waits)
                if changed or not place.exists():
                    await self._make(folders, place)
                bounds.forget_oldest(self._known, _KNOWN)
                self._known[key] = await asyncio.to_thread((place / _NAMES).read_bytes)
                bounds.mark_used(place)
                await asyncio.to_thread(bounds.prune, self._root, "*", {place})
            self.are_known |= toolchain.cuda is not None and not torch_alone
            return self._known[key]

    async def _have_changed(self, folders: list[str], since: Path) -> bool:
        """Whether a header is newer than an index, or that cannot be told."""
        if not since.is_file():
            return True
        command = _CHANGED.format(folders=_quoted(folders), since=shlex.quote(str(since)))
        done = await self._runner.run(
            ["/bin/sh", "-c", command], cwd=self._root, timeout=_SECONDS,
            environment={"PATH": os.environ.get("PATH", os.defpath)},
        )  # fmt: skip
        return done.timed_out or done.code not in (0, 1) or bool(done.output.strip())

    async def _make(self, folders: list[str], place: Path) -> None:
        self._root.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix="new-", dir=self._root))
        parts, made = scratch / "parts", scratch / "made"
        parts.mkdir()
        made.mkdir()
        (made / _SINCE).touch()
        draft = made / _NAMES
        command = _LISTED.format(
            folders=_quoted(folders), files=_FILES_AT_A_TIME, jobs=resources.processors(),
            of_files=shlex.quote(_OF_FILES), parts=shlex.quote(str(parts)),
            draft=shlex.quote(str(draft)),
        )  # fmt: skip
        try:
            with self._runner.background.step() as step:
                self._haste.runs(step)
                done = await self._runner.run(
                    ["/bin/sh", "-c", command], cwd=self._root, timeout=_SECONDS,
                    environment={"PATH": os.environ.get("PATH", os.defpath)}, step=step,
                )  # fmt: skip
            if done.code != 0 or done.timed_out or draft.stat().st_size == 0:
                raise OSError(f"the names in headers cannot be listed: {done.output[-300:]}")
            if place.exists():
                place.rename(scratch / "before")
            made.rename(place)
        finally:
            await asyncio.to_thread(shutil.rmtree, scratch, True)


def is_line(wanted: bytes, lines: bytes) -> bool:
    r"""Whether it is one of sorted lines, the last of which is ended as well.

    >>> is_line(b"b", b"a\nb\nbc\n"), is_line(b"c", b"a\nb\nbc\n")
    (True, False)
    """
    low, high = 0, len(lines)  # where it may begin
    while low < high:
        begin = max(low, lines.rfind(b"\n", low, (low + high) // 2) + 1)
        end = lines.index(b"\n", begin)
        if (found := lines[begin:end]) == wanted:
            return True
        low, high = (end + 1, high) if found < wanted else (low, begin)
    return False


def _quoted(folders: list[str]) -> str:
    return " ".join(shlex.quote(folder) for folder in folders if os.path.isdir(folder))


def _of_torch(toolchain: Toolchain) -> str:
    return os.path.join(toolchain.torch_dir, "include")


def _folders(toolchain: Toolchain) -> list[str]:
    """Where a compiler finds what is not the user's."""
    cudas = chain(*toolchain.cuda.include_folders) if toolchain.cuda is not None else ()
    pythons = (root for root in toolchain.roots if os.path.isfile(os.path.join(root, "Python.h")))
    return [_of_torch(toolchain), *cudas, *toolchain.include_folders, *pythons]
