"""What cudafe++ writes in front of a prelude, and which part of its text is the unit's own."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from warmcc.daemon.cuda import prologue
from warmcc.daemon.cuda.warm.level import BEGIN, Level, prologue_of

PROLOGUE = '# 1 "warmcc.cu"\nstatic char inited;\n'
HEAD = f'{PROLOGUE}# 61 "/cuda/cuda_runtime.h"\nint prelude;\n'


def a_level() -> Level:
    return Level("lean", "lean 1", (), Path("/l"), ["/overlay"], None, None, {})  # type: ignore[arg-type]


def test_only_the_units_own_part_is_kept() -> None:
    own = (
        f'# 1 "{BEGIN}"\ntypedef int warmcc_begin;\n# 3 "/overlay/ATen/ops/add.h" 3\n'
        f"int declared();\n# 4\n}}\n"
        '# 1 "cuda.cu"\nint a;\n# 2\nint b;\n# 9 "/usr/include/c++/12/map" 3\n'
        'int of_map;\n# 5 "cuda.cu"\nint c;\n'
    )
    known = frozenset({"/usr/include/c++/12/map"})
    kept = prologue.users_part(HEAD + own, a_level(), known)
    assert kept == '# 1 "cuda.cu"\nint a;\n# 2\nint b;\n# 5 "cuda.cu"\nint c;\n'
    other_names = HEAD.replace("prelude", "other") + own
    assert prologue.users_part(other_names, a_level(), frozenset()).startswith('# 1 "cuda.cu"')
    with pytest.raises(prologue.OtherPrologue):
        prologue.users_part(HEAD, a_level(), frozenset())


def test_what_stands_in_front_of_headers() -> None:
    assert prologue_of(HEAD) == PROLOGUE
    assert prologue_of(PROLOGUE) == PROLOGUE
    assert prologue_of("") == ""


class Looks:
    """Gives prologues, one after the other, and counts how often."""

    def __init__(self, *found: str) -> None:
        self.found = found
        self.made: list[int] = []
        self.known: dict[int, str] = {}

    def _look(self, number: int) -> Callable[[], Awaitable[str]]:
        async def look() -> str:
            self.made.append(number)
            await asyncio.sleep(0)
            return self.found[number]

        return look

    def check(self, *texts: str) -> list[str]:
        """Whether each of them is refused, where all are checked at the same time."""

        async def all_of_them() -> list[BaseException | None]:
            looks = [self._look(number) for number in range(len(self.found))]
            checks = (prologue.check(text, self.known, looks) for text in texts)
            return await asyncio.gather(*checks, return_exceptions=True)

        return ["" if one is None else type(one).__name__ for one in asyncio.run(all_of_them())]


def test_the_quick_look_is_enough_for_most_units() -> None:
    looks = Looks(PROLOGUE, "other")
    assert looks.check(HEAD) == [""]
    assert looks.check(HEAD) == [""]
    assert looks.made == [0]


def test_where_units_have_another_one_the_prelude_is_asked_once() -> None:
    looks = Looks("", PROLOGUE)
    assert looks.check(HEAD, HEAD) == ["", ""]
    made = list(looks.made)
    assert set(made) == {0, 1}
    managed = HEAD.replace("inited", "managed")
    assert looks.check(managed, HEAD, managed) == ["OtherPrologue", "", "OtherPrologue"]
    assert looks.made == made, "neither look is made again"


def test_equal_looks_are_not_made_again() -> None:
    looks = Looks(PROLOGUE, PROLOGUE)
    for _ in range(2):
        assert looks.check(HEAD.replace("inited", "managed")) == ["OtherPrologue"]
    assert looks.made == [0, 1]
