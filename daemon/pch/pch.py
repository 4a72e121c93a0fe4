"""One precompiled header of g++: how it is built, what is kept about it, and when it may be used.

On disk, in ``<cache>/profiles/<id>/``: ``prelude.h``, ``prelude.h.gch``, ``prelude.h.gch.sum``
(what ccache digests in its place) and ``profile`` (a checked record, written last: without it the
folder is rubbish from a daemon that died). GCC does not checksum a PCH, so the daemon does: in full
when it first meets the file and whenever its stat fingerprint has changed, and by the fingerprint
before each use.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path

import msgspec

from warmcc import digest, status
from warmcc.daemon.closure import has_include
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.pch import directives, leading_includes, lean
from warmcc.daemon.system import runner
from warmcc.daemon.system.background import Haste
from warmcc.daemon.toolchain import Toolchain, lookups, ninja
from warmcc.daemon.toolchain.flags import optimises


class State(Enum):
    """How far a profile's PCH is."""

    UNVERIFIED = "unverified"  # left by an earlier daemon, or changed since it was read
    BUILDING = "building"
    READY = "ready"
    FAILED = "failed"


Stat = tuple[int, int, int, int]


class Record(msgspec.Struct, frozen=True):
    """What is kept about a PCH.
    ``stat`` is its (size, mtime_ns, ctime_ns, inode); ``includes`` are the headers in it by the
    names under which they are found; ``finished``: templates were instantiated before it was
    written; ``asked``: names for which its headers look with ``__has_include``."""

    flags: list[str]
    headers: list[str]
    finished: bool
    sha256: str
    stat: Stat
    includes: list[str]
    closure: Closure
    asked: list[str] = []


@dataclass(eq=False)
class Profile:
    """One profile and the life of its PCH.
    ``includes`` and ``names`` are for one that has a record."""

    id: str
    folder: Path
    flags: list[str]
    headers: tuple[str, ...]
    state: State
    record: Record | None = None
    uses: int = 0
    used: float = field(default_factory=time.time)
    asked: int = 0  # times that a unit had to do without it
    failed_at: float = 0.0
    reason: str = ""
    haste: Haste = field(default_factory=Haste)  # of its build
    settled: asyncio.Event = field(default_factory=asyncio.Event)  # it was built, or has failed
    is_long: bool = False  # in its build: it is not waited for once more
    harmless: set[str] = field(default_factory=set)  # macros that only messages in it mention

    @property
    def header(self) -> Path:
        return self.folder / "prelude.h"

    @property
    def gch(self) -> Path:
        return self.folder / "prelude.h.gch"

    @property
    def size(self) -> int:
        return self.record.stat[0] if self.record else 0

    @property
    def title(self) -> str:
        """As people call it: its headers and the flags that tell it from others."""
        known = lean.TITLES.get(self.headers)
        headers = [f"<{name}>" for name in self.headers] if known is None else [known]
        plain = [
            word
            for word in self.flags
            if not word.startswith(("-DTORCH_", "-DPYBIND11_", "-D_GLIBCXX"))
        ]
        options = [
            word
            for i, word in enumerate(plain)
            if word != "-isystem" and plain[i - 1 : i] != ["-isystem"]
        ]
        return " ".join([*headers, *options])

    def report(self, *, shared: bool) -> status.Profile:
        """What ``warmcc status`` shows of it."""
        finished = self.record is not None and self.record.finished
        return status.Profile(
            self.id[:12], self.state.value, self.title, list(self.headers), self.flags, finished,
            self.size, self.uses, self.used, self.reason, shared,
        )  # fmt: skip

    @property
    def lets_go(self) -> bool:
        """Whether unused statics may be dropped.
        g++ drops them itself when it optimises; of those in the user's headers it would
        otherwise warn."""
        return not optimises(self.flags) and leading_includes.is_torchs(self.headers)

    @cached_property
    def includes(self) -> frozenset[str]:
        assert self.record is not None
        return frozenset(self.record.includes)

    def is_same_with(self, macro: str, closures: Closures) -> bool:
        """Whether its headers are the same where a macro is defined for which g++ refuses it.
        False where they cannot be read."""
        paths = closures.paths(self.record.closure) if self.record is not None else None
        try:
            if paths is None or not all(
                directives.only_in_messages(Path(path).read_bytes(), macro) for path in paths
            ):
                return False
        except OSError:
            return False
        self.harmless.add(macro)
        return True

    @cached_property
    def names(self) -> frozenset[str]:
        """First parts of names that are included or asked for: other folders must lack them."""
        assert self.record is not None
        return frozenset(
            name.partition("/")[0] for name in (*self.record.includes, *self.record.asked)
        )


def fingerprint(path: Path) -> Stat:
    """Size, modification, change and inode of a file. Raises OSError."""
    found = path.stat()
    return found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino


def read_record(folder: Path) -> Record | None:
    """The record of a complete profile; None for rubbish."""
    try:
        data = (folder / "profile").read_bytes()
        if digest.of_bytes(data[64:]).encode() != data[:64]:
            return None
        return msgspec.msgpack.decode(data[64:], type=Record)
    except (OSError, msgspec.MsgspecError):
        return None


def verified(record: Record, gch: Path) -> Record | None:
    """The record of a PCH as its file is now, which is read as a whole; None where it is another
    one."""
    try:
        stat = fingerprint(gch)
        intact = digest.of_file(gch) == record.sha256
    except OSError:
        return None
    return msgspec.structs.replace(record, stat=stat) if intact else None


def header_sets(root: Path) -> set[str]:
    """The header sets of all complete profiles in a folder of them."""
    records = map(read_record, root.iterdir()) if root.is_dir() else ()
    return {name for record in records if record is not None for name in record.closure.header_sets}


def write_record(folder: Path, record: Record) -> None:
    """Make a profile complete."""
    data = msgspec.msgpack.encode(record)
    draft = folder / "profile.new"
    draft.write_bytes(digest.of_bytes(data).encode() + data)
    draft.rename(folder / "profile")


@dataclass(frozen=True)
class Finish:
    """What makes g++ finish a PCH: options for its build and a last line of the header.
    ``letting_go`` are options for headers in which what nothing uses is not to be kept."""

    options: list[str]
    line: str
    letting_go: list[str]

    @property
    def plugin(self) -> Path:
        """The file that is the first of the options."""
        return Path(self.options[0].partition("=")[2])


# Gives it for a compiler and the flags of a PCH; None where the PCH is to be an ordinary one.
Finisher = Callable[[Toolchain, list[str]], Awaitable[Finish | None]]


class PchBuilder:
    """Builds PCHs with ninja, at the lowest priority."""

    def __init__(
        self, root: Path, closures: Closures, runner: runner.Runner, *, ninja_path: str,
        timeout: float,
    ) -> None:  # fmt: skip
        self._root = root
        self._closures = closures
        self._runner = runner
        self._ninja = ninja_path
        self._timeout = timeout

    async def build(
        self, profile: Profile, toolchain: Toolchain, environment: dict[str, str],
        finish: Finish | None,
    ) -> Record:  # fmt: skip
        """Build the PCH in the profile's folder.
        Raises OSError, ChangedDuringBuild, RuntimeError."""
        shutil.rmtree(profile.folder, ignore_errors=True)
        profile.folder.mkdir()
        profile.header.write_text(
            leading_includes.text(profile.headers) + (f"{finish.line}\n" if finish else "")
        )
        options = finish.options if finish else []
        if finish and profile.lets_go:
            options = [*options, *finish.letting_go]
        (profile.folder / "build.ninja").write_text(
            "ninja_required_version = 1.3\n"
            f"cxx = {ninja.shell_words([*toolchain.argv, *options])}\n"
            f"cflags = {ninja.shell_words(profile.flags)}\n"
            "rule pch\n"
            "  command = $cxx -MD -MF pch.d $cflags -x c++-header prelude.h -o $out\n"
            "build new.gch: pch prelude.h\n"
        )
        marker = Marker.take(profile.folder, [])
        with self._runner.background.step(lambda: profile.asked) as step:
            profile.haste.runs(step)
            done = await self._runner.run(
                [self._ninja, "-v"], cwd=profile.folder,
                environment={**environment, "TMPDIR": str(profile.folder)}, timeout=self._timeout,
                aside=not profile.haste.wanted, step=step,
            )  # fmt: skip
        if done.code != 0:
            raise RuntimeError("the time limit ran out" if done.timed_out else done.output[-2000:])
        return await asyncio.to_thread(
            self._keep, profile, toolchain, environment, marker, finish is not None
        )

    def _keep(
        self, profile: Profile, toolchain: Toolchain, environment: dict[str, str], marker: Marker,
        finished: bool,
    ) -> Record:  # fmt: skip
        paths = ninja.dependencies(profile.folder / "pch.d", profile.folder)
        searched = lookups.header_search(profile.flags, toolchain.include_folders, environment)
        closure = self._closures.record(
            paths, toolchain_roots=toolchain.roots, include_dirs=searched, started=marker,
            ignore=[str(self._root)],
        )  # fmt: skip
        built = profile.folder / "new.gch"
        sha256 = digest.of_file(built)
        built.rename(profile.gch)
        (profile.folder / "prelude.h.gch.sum").write_text(sha256)
        includes = sorted(_included(paths, searched))
        asked = sorted(
            {name for path in paths for name in has_include.asked(Path(path).read_bytes())}
        )
        record = Record(
            profile.flags, list(profile.headers), finished, sha256, fingerprint(profile.gch),
            includes, closure, asked,
        )  # fmt: skip
        write_record(profile.folder, record)
        return record


def _included(paths: list[str], searched: list[str]) -> set[str]:
    """Paths as written in an include: relative to each searched folder that holds them."""
    roots = {os.path.realpath(folder).rstrip("/") + "/" for folder in searched}
    return {
        path[len(root) :]
        for path in map(os.path.realpath, paths)
        for root in roots
        if path.startswith(root)
    }
