"""The rooms: what imports what, how many modules share one, and how long they are."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc

TOP = Path(warmcc.__file__).parents[1]
# From the top to the bottom: a room imports those behind it. What the sides import of each other:
# test_imports.py.
ROOMS = {
    "daemon": [
        "__main__", "main", "serve", "cuda", "build", "plan", "pch", "verify", "store", "closure",
        "toolchain", "system", "native",
    ],
    "client": ["cli", "integrations", "live", "calls", "stock", "loading", "connection", "notices"],
}  # fmt: skip
MODULES, LINES, FUNCTION = 15, 350, 60
FILES = [
    path for side in ROOMS for path in sorted((TOP / side).rglob("*.py"))
    if path != TOP / side / "__init__.py"
]  # fmt: skip
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TOP)))


def imported(path: Path) -> Iterator[str]:
    """The modules of warmcc that a file imports, wherever it does; packages where it takes a name
    from one.
    """
    for node in ast.walk(ast.parse(path.read_text())):
        if (
            isinstance(node, ast.ImportFrom)
            and node.module is not None
            and node.module.startswith("warmcc")
        ):
            for name in node.names:
                full = f"{node.module}.{name.name}"
                yield full if is_module(full) else node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("warmcc"))


def is_module(name: str) -> bool:
    _, side, *rest = name.split(".")
    place = TOP.joinpath(*([] if side in ROOMS else ["warmcc"]), side, *rest)
    return place.with_suffix(".py").is_file() or (place / "__init__.py").is_file()


def place_of(path: Path) -> tuple[str, str]:
    """Side and room of a file."""
    side, room, *_ = path.relative_to(TOP).with_suffix("").parts
    return side, room


@each_file
def test_imports_point_downwards(path: Path) -> None:
    side, room = place_of(path)
    below = ROOMS[side][ROOMS[side].index(room) :]
    for name in imported(path):
        if name.startswith(f"warmcc.{side}."):
            assert name.split(".")[2] in below, f"{room} imports {name}"


def test_every_room_is_listed() -> None:
    assert {place_of(path) for path in FILES} == {
        (side, room) for side, rooms in ROOMS.items() for room in rooms
    }


def test_rooms_are_small() -> None:
    folders = {path.parent for path in FILES}
    counts = {
        folder: len([path for path in folder.glob("*.py") if path.name != "__init__.py"])
        for folder in folders
    }
    assert {str(folder): count for folder, count in counts.items() if count > MODULES} == {}


@each_file
def test_modules_and_functions_are_short(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) <= LINES
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < FUNCTION, node.name
