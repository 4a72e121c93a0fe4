"""What cudafe++ writes of a unit alone, and what it puts in front of everything.

Its text of a unit begins with a *prologue* (declarations for managed variables and extended
lambdas), goes on with the prelude, which g++ has read already, and ends with the unit's own part.
A unit that changes the prologue is not compiled behind the host's prelude, which has another one.

The prologue of a level is that of a unit without a prelude, which takes milliseconds. Where units
have another one, a unit that is empty behind the prelude is asked, which takes more than a second.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from warmcc.daemon.cuda.warm import level as levels
from warmcc.daemon.cuda.warm.level import Level
from warmcc.daemon.cuda.warm.profile import CudaProfile
from warmcc.daemon.system.runner import Runner

_SECONDS = 300.0
_MARKER = re.compile(r'# \d+(?: "([^"]+)")?')
_FIRST = '# 1 "/"\ntypedef int warmcc_first;\n'


class OtherPrologue(Exception):
    """cudafe++ wrote something else in front of the prelude than for an empty unit."""


@dataclass(frozen=True)
class Empty:
    """Has a unit with nothing in it compiled, in a folder."""

    profile: CudaProfile
    level: Level
    runner: Runner
    folder: Path

    async def alone(self) -> str:
        """The prologue of one without a prelude. Raises OSError."""
        plan, prelude = self.profile.plan, self.level.cudafe.folder / levels.PRELUDE
        place = self.folder / "empty"
        place.mkdir(exist_ok=True)
        levels.place_empty(place)
        text = await asyncio.to_thread(_read, prelude)
        (place / levels.PRELUDE).write_text(levels.prologue_of(text) + _FIRST, encoding="utf-8")
        (place / "main.ii").write_text(levels.including(), encoding="utf-8")
        words = ["main.ii" if word == plan.cudafe.input else word for word in plan.cudafe.words]
        done = await self.runner.run(
            words, cwd=place, environment=self.profile.environment, timeout=_SECONDS
        )
        # Whatever is wrong with it is wrong with units, too.
        return levels.prologue_of(_read(place / plan.cudafe.text)) if done.code == 0 else ""

    async def behind_prelude(self) -> str:
        """The prologue of one behind the level's prelude. Raises ServerDied, OSError."""
        return await levels.empty_unit(self.level, self.profile.plan)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


async def check(
    written: str, known: dict[int, str], looks: list[Callable[[], Awaitable[str]]]
) -> None:
    """See that a text has one of the prologues of its level: ``looks`` give them, the quickest
    first, and ``known`` has what they gave. Raises OtherPrologue, and what the looks raise."""
    prologue = levels.prologue_of(written)
    for number, look in enumerate(looks):
        if prologue in known.values():
            return
        if number not in known:
            known[number] = await look()
    if prologue not in known.values():
        raise OtherPrologue(prologue[-2000:])


def users_part(written: str, level: Level, known: frozenset[str]) -> str:
    """The unit's own part of what cudafe++ wrote, without the lines of files that the host's
    prelude has (``known``) and of folders in front. Raises OtherPrologue.

    Of the prelude itself it writes the same declarations for every unit, with names more or less
    qualified. Of one that has read more than the host's, the unit's own part has the rest.
    """
    head, found, own = written.partition(f'# 1 "{levels.BEGIN}"\n')
    if not found:
        raise OtherPrologue("cudafe++ does not write where a unit begins")
    more = "" if level.lender is None else head[len(levels.prologue_of(head)) :]
    others = (levels.BEGIN, levels.MAIN)
    kept: list[str] = []
    keep = False
    for line in (more + own).split("\n"):
        if (match := _MARKER.match(line)) is not None and match[1] is not None:
            known_one = match[1] in others or match[1] in known
            keep = not known_one and not match[1].startswith(tuple(level.front))
        if keep:
            kept.append(line)
    return "\n".join(kept)
