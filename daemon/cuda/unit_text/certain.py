"""Errors that are certain behind the lean prelude, which has a part of torch's headers only.

Most errors may be the prelude's: a class, an overload or a macro is not there. Three kinds are not,
whatever else the headers say: a name that no header mentions, a mistake in the syntax, and a call
in device code of a host function whose name no header mentions; each in a unit that mentions no
macro but those that the prelude has in the same way. Their text is what nvcc would print, as the
front end is the same and stops there.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

from warmcc.daemon.cuda.dryrun import Device
from warmcc.daemon.cuda.overlay import searching
from warmcc.daemon.cuda.unit_text import mentions
from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.system.runner import Runner

_SECONDS = 60.0
_ERROR = re.compile(
    r"^(\S[^\n]*?)\(\d+\): ((?:catastrophic |internal |fatal )?error)(?: #\S+)?: ([^\n]*)", re.M
)
_NAME = re.compile(r'identifier "([A-Za-z_]\w*)" is undefined')
_SYNTAX = re.compile(
    r"expected an? .+|missing closing quote|unrecognized token|extra text after expected end .*"
)
# What cicc says of a host function that a kernel calls; nvcc comes to it where cudafe++ succeeds
_HOST_FUNCTION = re.compile(
    r'calling a __host__ function\("([A-Za-z_]\w*)\([^"]*\)"\) from a __(?:global|device)__ '
    r'function\("[^"]*"\) is not allowed'
    r'|identifier "([A-Za-z_]\w*)\([^"]*\)" is undefined in device code'
)
_MACRO = re.compile(r"^#define (\w+)(.*)$", re.M)
_WORD = re.compile(r"[A-Za-z_]\w*")
# Inside of a namespace of the headers, what they have there hides what is outside.
_REOPENS = re.compile(
    r"\bnamespace\s+(?:at|c10|torch|caffe2|pybind11|std|cuda|thrust|cub)\b(?![\w\s:]*;)"
)


async def is_certain(
    profile: CudaProfile, level: Level, text: str, output: str, runner: Runner
) -> bool:
    """Whether nvcc would say just this of a unit's ``text``: ``output`` is what cudafe++ printed
    behind the lean prelude. As long as the text of the host's is being made, the preprocessor alone
    says what headers mention. Raises OSError."""
    host = profile.host
    is_header = profile.toolchain.owns if host is None else host.read.__contains__
    names: set[str] = set()
    errors = _ERROR.findall(output)
    for path, kind, message in errors:
        named = _NAME.fullmatch(message)
        if kind != "error" or is_header(path) or not (named or _SYNTAX.fullmatch(message)):
            return False
        names.update([named[1]] if named else [])
    if not errors or _REOPENS.search(text):
        return False
    missing, mentioned = await asyncio.gather(
        lacking(profile, level, runner), _mentioned(names, profile, runner)
    )
    return not mentioned and missing.isdisjoint(_WORD.findall(text))


async def is_certain_for_devices(
    profile: CudaProfile, level: Level, text: str, output: str, runner: Runner
) -> bool:
    """The same of what cicc printed, which is about host functions. Raises OSError."""
    errors = _ERROR.findall(output)
    found = [_HOST_FUNCTION.fullmatch(message) for _, _, message in errors]
    names = {match[1] or match[2] for match in found if match is not None}
    if not errors or None in found or any(kind != "error" for _, kind, _ in errors):
        return False
    if _REOPENS.search(text):
        return False
    seen = await asyncio.gather(
        lacking(profile, level, runner), _lacking_on_devices(profile, level, runner)
    )
    if any(not missing.isdisjoint(_WORD.findall(text)) for missing in seen):
        return False
    if await _mentioned(names, profile, runner):
        return False
    for device in profile.plan.devices:
        made = await _real_text(profile, level, device, runner)
        if await asyncio.to_thread(mentions.mentioned, names, [str(made)]):
            return False
    return True


async def _real_text(
    profile: CudaProfile, level: Level, device: Device, runner: Runner
) -> Path:  # fmt: skip
    """What one device's front end reads of torch's headers; made once. Raises OSError."""
    kept = level.folder / f"real-{device.architecture}.ii"
    if not kept.exists():
        words = device.preprocess.options
        async with _preprocessed(profile, profile.headers, [], [], runner, words) as text:
            await asyncio.to_thread(shutil.copyfile, text, draft := f"{kept}.{os.urandom(4).hex()}")
            os.replace(draft, kept)
    return kept


async def _lacking_on_devices(
    profile: CudaProfile, level: Level, runner: Runner
) -> frozenset[str]:  # fmt: skip
    """As ``lacking``, for the front ends of all devices."""
    if level.lacking_on_devices is None:
        found: set[str] = set()
        for device in profile.plan.devices:
            words = device.preprocess.options
            real, lean = await asyncio.gather(
                _macros(profile, profile.headers, [], runner, words),
                _macros(profile, level.headers, level.front, runner, words),
            )
            found |= _differing(real, lean)
        level.lacking_on_devices = frozenset(found)
    return level.lacking_on_devices


async def _mentioned(names: set[str], profile: CudaProfile, runner: Runner) -> set[str]:
    """Those of the names that torch's headers have in them, or make with their macros."""
    if not names:
        return set()
    if (host := profile.host) is not None:
        return await asyncio.to_thread(mentions.mentioned, names, mentions.of_host(host))
    async with _preprocessed(profile, profile.headers, [], [], runner) as text:
        return await asyncio.to_thread(mentions.mentioned, names, [str(text)])


async def lacking(profile: CudaProfile, level: Level, runner: Runner) -> frozenset[str]:
    """Macros of torch's headers that a level's prelude does not have, or has in another way; and
    those that it has alone. Raises OSError."""
    if level.lacking is None:
        real, lean = await asyncio.gather(
            _macros(profile, profile.headers, [], runner),
            _macros(profile, level.headers, level.front, runner),
        )
        level.lacking = frozenset(_differing(real, lean))
    return level.lacking


def _differing(real: dict[str, str], lean: dict[str, str]) -> set[str]:
    return {name for name in real.keys() | lean.keys() if real.get(name) != lean.get(name)}


async def _macros(
    profile: CudaProfile, headers: tuple[str, ...], front: list[str], runner: Runner,
    words: tuple[str, ...] = (),
) -> dict[str, str]:  # fmt: skip
    """The macros behind headers, with their definitions. Raises OSError."""
    async with _preprocessed(profile, headers, front, ["-dM"], runner, words) as text:
        return dict(_MACRO.findall(text.read_text(encoding="utf-8", errors="surrogateescape")))


@contextlib.asynccontextmanager
async def _preprocessed(
    profile: CudaProfile, headers: tuple[str, ...], front: list[str], options: list[str],
    runner: Runner, words: tuple[str, ...] = (),
) -> AsyncIterator[Path]:  # fmt: skip
    """What a preprocessor writes of headers, for the length of the context: the host's, or the one
    of these words. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="warmcc-headers-") as scratch:
        folder, own = Path(scratch), list(words or profile.plan.preprocess.options)
        (folder / levels.MAIN).write_text(levels.includes(headers), encoding="utf-8")
        command = [*searching.in_front(own, front), *options, levels.MAIN, "-o", "written"]
        environment = {**profile.environment, "TMPDIR": scratch}
        done = await runner.run(command, cwd=folder, environment=environment, timeout=_SECONDS)
        if done.code != 0:
            raise OSError(f"{headers[0]} cannot be preprocessed: {done.output[-500:]}")
        yield folder / "written"
