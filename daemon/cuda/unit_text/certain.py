"""Errors that are certain behind the lean prelude, which has a part of torch's headers only.

Most errors may be the prelude's: a class, an overload or a macro is not there. Three kinds are not,
whatever else the headers say: a name that no header mentions, on its own or as a member of a
namespace or of at::Tensor; a mistake in the syntax; and a call in device code of a host function
whose name no header mentions; each in a unit that mentions no macro but those that the prelude has
in the same way. Their text is what nvcc would print, as the front end is the same and stops there.
The headers are those that the unit itself includes. Where all of them stand in front of its own
code, they are looked into once for all units; else this unit is preprocessed with the real ones:
macros are the same where its own lines come out the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from pathlib import Path

from warmcc.daemon.cuda.dryrun import Device
from warmcc.daemon.cuda.overlay import searching
from warmcc.daemon.cuda.unit_text import mentions
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.pch import leading_includes
from warmcc.daemon.system.runner import Runner

_SECONDS = 60.0
_MOST = 8  # texts of headers that a level keeps, some ten megabytes each
_ERROR = re.compile(
    r"^(\S[^\n]*?)\(\d+\): ((?:catastrophic |internal |fatal )?error)(?: #\S+)?: ([^\n]*)", re.M
)
_NAME = re.compile(
    r'identifier "([A-Za-z_]\w*)" is undefined'
    r'|(?:namespace "[\w:]+"|class "at::Tensor") has no member "([A-Za-z_]\w*)"'
)
_SYNTAX = re.compile(
    r"expected an? .+|missing closing quote|unrecognized token|extra text after expected end .*"
)
# What cicc says of a host function that a kernel calls; nvcc comes to it where cudafe++ succeeds
_HOST_FUNCTION = re.compile(
    r'calling a __host__ function\("([A-Za-z_]\w*)(?:\([^"]*\))?"\) from a __(?:global|device)__ '
    r'function\("[^"]*"\) is not allowed'
    r'|identifier "([A-Za-z_]\w*)(?:\([^"]*\))?" is undefined in device code'
)
_DEFINED = re.compile(r"^#(?:define (\w+)(.*)|undef (\w+).*)$", re.M)
_MARKER = re.compile(r'# \d+ "((?:[^"\\]|\\.)*)"')
_REAL = "real.cu"  # the unit, to be preprocessed with the real headers
_WORD = re.compile(r"[A-Za-z_]\w*")
_INCLUDES = re.compile(r"^[ \t]*(?:#|%:|\?\?=)[ \t]*(?:include|import)|\b_Pragma\b", re.M)
# Inside of a namespace of the headers, what they have there hides what is outside.
_REOPENS = re.compile(
    r"\bnamespace\s+(?:at|c10|torch|caffe2|pybind11|std|cuda|thrust|cub)\b(?![\w\s:]*;)"
)


@dataclass(frozen=True)
class Unit:
    """A unit that a front end of a lean ``level`` refused, in a ``folder``. ``definitions`` are
    lines in front of its ``text``."""

    profile: CudaProfile
    level: Level
    definitions: str
    text: str
    runner: Runner
    folder: Path

    @property
    def headers(self) -> tuple[str, ...] | None:
        """Those that it includes; None where one does not stand in front of everything else, or
        may be the caller's."""
        found = leading_includes.leading(self.text)
        if self.profile.folders or len(_INCLUDES.findall(self.text)) != len(found):
            return None
        return found


async def is_certain(unit: Unit, output: str) -> bool:
    """Whether nvcc would say just this of a unit: ``output`` is what cudafe++ printed. Raises
    OSError."""
    host = unit.profile.host
    names: set[str] = set()
    errors = _ERROR.findall(output)
    for path, kind, message in errors:
        is_header = unit.profile.toolchain.owns(path) or (host is not None and path in host.read)
        named = _NAME.fullmatch(message)
        if kind != "error" or is_header or not (named or _SYNTAX.fullmatch(message)):
            return False
        names.update([named[1] or named[2]] if named else [])
        if named and named[2] and _is_declared(named[2], unit.text):
            return False
    if not errors or _REOPENS.search(unit.text):
        return False
    if unit.headers is None:
        return await _comes_out_the_same(unit, names)
    return await _is_the_same(unit, names, [None])


async def is_certain_for_devices(unit: Unit, output: str) -> bool:
    """The same of what cicc printed, which is about host functions. Raises OSError."""
    errors = _ERROR.findall(output)
    found = [_HOST_FUNCTION.fullmatch(message) for _, _, message in errors]
    names = {match[1] or match[2] for match in found if match is not None}
    if not errors or None in found or any(kind != "error" for _, kind, _ in errors):
        return False
    return await _is_the_same(unit, names, [None, *unit.profile.plan.devices])


async def _comes_out_the_same(unit: Unit, names: set[str]) -> bool:
    """Whether the unit's own lines are the same behind the real headers, which mention none of the
    names: as the host reads them. Raises OSError."""
    wrapper = (unit.folder / levels.UNIT).read_text(encoding="utf-8", errors="surrogateescape")
    lines = [line for line in wrapper.splitlines() if not line.startswith("#include <")]
    text = "\n".join([*lines, ""])
    (unit.folder / _REAL).write_text(text, encoding="utf-8", errors="surrogateescape")
    done = await unit.runner.run(
        [*unit.profile.plan.preprocess.options, _REAL, "-o", f"{_REAL}.ii"],
        cwd=unit.folder, environment={**unit.profile.environment, "TMPDIR": str(unit.folder)},
        timeout=_SECONDS,
    )  # fmt: skip
    if done.code != 0:
        return False  # the real headers lack one, or have an #error
    real, lean = (unit.folder / f"{_REAL}.ii", unit.folder / levels.TEXT)
    return await asyncio.to_thread(_agree, unit, names, real, lean)


def _agree(unit: Unit, names: set[str], real: Path, lean: Path) -> bool:
    (own, others), (own_of_lean, _) = (_parted(unit, path) for path in (real, lean))
    return own.split() == own_of_lean.split() and not any(name in others for name in names)


def _parted(unit: Unit, path: Path) -> tuple[str, str]:
    """Preprocessed text: the lines of the unit's own files, and those of headers."""
    profile, level = unit.profile, unit.level
    read: Collection[str] = () if profile.host is None else profile.host.read
    ours = (*level.front, str(level.folder.parent))
    parts: dict[bool, list[str]] = {True: [], False: []}
    is_own = False
    for line in path.read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        if (match := _MARKER.match(line)) is None:
            parts[is_own].append(line)
            continue
        name = match[1]
        is_own = not (
            name.startswith(("<", *ours)) or name in (levels.BEGIN, levels.MAIN, levels.UNIT, _REAL)
            or profile.toolchain.owns(name) or name in read
        )  # fmt: skip
    return "\n".join(parts[True]), "\n".join(parts[False])


def _is_declared(name: str, text: str) -> bool:
    """Whether a unit may declare a name that it asks of a class or a namespace: it stands at
    another place than behind ``.``, ``->`` or ``::``."""
    asked = rf"(?:\.|->|::)\s*(?:template\s+)?{name}\b"
    return len(re.findall(asked, text)) != len(re.findall(rf"\b{name}\b", text))


async def _is_the_same(unit: Unit, names: set[str], readers: list[Device | None]) -> bool:
    """Whether the real headers mention none of the names, and make no macro of the unit another
    one: as the host (None) and devices read them."""
    if unit.headers is None or _REOPENS.search(unit.text):
        return False
    words = _WORD.findall(unit.definitions + unit.text)
    found = await asyncio.gather(*(_behind(unit, unit.headers, reader) for reader in readers))
    for text, lacking in found:
        if not lacking.isdisjoint(words):
            return False
        if await asyncio.to_thread(mentions.mentioned, names, [str(text)]):
            return False
    return True


async def _behind(
    unit: Unit, headers: tuple[str, ...], device: Device | None
) -> tuple[Path, frozenset[str]]:
    """What a reader finds in headers, with the lines that define macros; and the macros that the
    level's prelude does not have, or has in another way, or has alone. Raises OSError."""
    level = unit.level
    key = ("" if device is None else device.architecture, headers)
    if key not in level.behind:
        kept = level.folder / f"real-{secrets.token_hex(8)}.ii"
        real, lean = await asyncio.gather(
            _macros(unit, headers, [], device, kept),
            _macros(unit, (*level.headers, *headers), level.front, device),
        )
        while len(level.behind) >= _MOST:
            old, _ = level.behind.pop(next(iter(level.behind)))
            await asyncio.to_thread(old.unlink, missing_ok=True)
        differing = {name for name in real.keys() | lean.keys() if real.get(name) != lean.get(name)}
        level.behind[key] = kept, frozenset(differing)
    return level.behind[key]


async def _macros(
    unit: Unit, headers: tuple[str, ...], front: list[str], device: Device | None,
    kept: Path | None = None,
) -> dict[str, str]:  # fmt: skip
    """The macros behind headers, whose text is ``kept``, with their definitions. Raises OSError."""
    async with _preprocessed(unit, headers, front, device) as written:
        if kept is not None:
            await asyncio.to_thread(shutil.copyfile, written, kept)
        return await asyncio.to_thread(_defined_in, written)


def _defined_in(path: Path) -> dict[str, str]:
    """The macros that are defined at the end of preprocessed text."""
    found: dict[str, str] = {}
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    for defined, definition, undefined in _DEFINED.findall(text):
        if defined:
            found[defined] = definition
        else:
            found.pop(undefined, None)
    return found


@contextlib.asynccontextmanager
async def _preprocessed(
    unit: Unit, headers: tuple[str, ...], front: list[str], device: Device | None
) -> AsyncIterator[Path]:
    """What a preprocessor writes of headers and their macros, for the length of the context: the
    host's, or that of a device. Raises OSError."""
    profile = unit.profile
    step = profile.plan.preprocess if device is None else device.preprocess
    with tempfile.TemporaryDirectory(prefix="warmcc-headers-") as scratch:
        folder = Path(scratch)
        (folder / levels.MAIN).write_text(levels.includes(headers), encoding="utf-8")
        words = searching.in_front(list(step.options), front)
        environment = {**profile.environment, "TMPDIR": scratch}
        done = await unit.runner.run(
            [*words, "-dD", levels.MAIN, "-o", "written"],
            cwd=folder, environment=environment, timeout=_SECONDS,
        )  # fmt: skip
        if done.code != 0:
            raise OSError(f"{', '.join(headers)} cannot be preprocessed: {done.output[-500:]}")
        yield folder / "written"
