"""Errors that are certain behind the lean prelude, which has a part of torch's headers only.

Most errors may be the prelude's: a class, an overload or a macro is not there. Two kinds are not,
whatever else the headers say: a name that no header mentions, and a mistake in the syntax of a unit
that mentions no macro but those that the prelude has in the same way. Their text is what nvcc would
print, as the front end is the same and stops there.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

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
        level.lacking = frozenset(
            name for name in real.keys() | lean.keys() if real.get(name) != lean.get(name)
        )
    return level.lacking


async def _macros(
    profile: CudaProfile, headers: tuple[str, ...], front: list[str], runner: Runner
) -> dict[str, str]:
    """The macros behind headers, with their definitions. Raises OSError."""
    async with _preprocessed(profile, headers, front, ["-dM"], runner) as text:
        return dict(_MACRO.findall(text.read_text(encoding="utf-8", errors="surrogateescape")))


@contextlib.asynccontextmanager
async def _preprocessed(
    profile: CudaProfile, headers: tuple[str, ...], front: list[str], options: list[str],
    runner: Runner,
) -> AsyncIterator[Path]:  # fmt: skip
    """What the preprocessor writes of headers, for the length of the context. Raises OSError."""
    with tempfile.TemporaryDirectory(prefix="warmcc-headers-") as scratch:
        folder, words = Path(scratch), list(profile.plan.preprocess.options)
        (folder / levels.MAIN).write_text(levels.includes(headers), encoding="utf-8")
        words = [*searching.in_front(words, front), *options, levels.MAIN, "-o", "written"]
        environment = {**profile.environment, "TMPDIR": scratch}
        done = await runner.run(words, cwd=folder, environment=environment, timeout=_SECONDS)
        if done.code != 0:
            raise OSError(f"{headers[0]} cannot be preprocessed: {done.output[-500:]}")
        yield folder / "written"
