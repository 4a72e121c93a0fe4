"""The rooms: what imports what, how many modules share one, how long they are, and how many others
they import.
"""

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
        "__main__", "main", "serve", "remote", "run", "cuda", "kernel", "build", "plan", "pch",
        "verify", "store", "closure", "toolchain", "forking", "system",
        "native",
    ],
    "client": [
        "cli", "measuring", "integrations", "slim", "prebuild", "live", "install", "inductor",
        "launcher", "run", "kernel", "calls", "stubs", "bundles", "analyze", "stock", "loading",
        "connection", "replacing", "notices",
    ],
}  # fmt: skip
MODULES, LINES, FUNCTION, IMPORTS = 15, 350, 60, 15
# Modules that import more than IMPORTS others, with the most that they may: these only shrink.
# ``daemon/main.py`` is the composition of all parts, and may import any number.
HUBS: dict[str, int] = {}  # modules that import more, and how many
COMPOSITION = "daemon/main.py"
FILES = [
    path for side in ROOMS for path in sorted((TOP / side).rglob("*.py"))
    if path != TOP / side / "__init__.py"
]  # fmt: skip
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TOP)))


def imported(text: str) -> Iterator[str]:
    """The modules of warmcc that a text imports, wherever it does; packages where it takes a name
    from one.
    """
    for node in ast.walk(ast.parse(text)):
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


def upwards(side: str, room: str, text: str) -> list[str]:
    """The imports in a module of a room that do not point to it or below."""
    below = ROOMS[side][ROOMS[side].index(room) :]
    return [
        name
        for name in imported(text)
        if name.startswith(f"warmcc.{side}.") and name.split(".")[2] not in below
    ]


@each_file
def test_imports_point_downwards(path: Path) -> None:
    assert upwards(*place_of(path), path.read_text()) == []


@pytest.mark.parametrize("side", ROOMS)
def test_an_import_that_is_turned_round_is_found(side: str) -> None:
    """Each import between two rooms, written into a module of the room that is imported."""
    found = set()
    for path in FILES:
        importer, room = place_of(path)
        for name in imported(path.read_text()) if importer == side else ():
            if name.startswith(f"warmcc.{side}.") and name.split(".")[2] != room:
                found.add((room, name.split(".")[2]))
    assert len(found) > 5
    for above, below in found:
        for turned in (
            f"import warmcc.{side}.{above}",
            f"from warmcc.{side} import {above}",
            f"from warmcc.{side}.{above} import anything",
            f"def late() -> None:\n    from warmcc.{side}.{above} import anything",
        ):
            assert upwards(side, below, turned), f"{below}: {turned}"
        assert upwards(side, above, f"from warmcc.{side}.{below} import anything") == []


@each_file
def test_modules_import_few_others(path: Path) -> None:
    name = str(path.relative_to(TOP))
    count = len(set(imported(path.read_text())))
    if name in HUBS:
        assert IMPORTS < count <= HUBS[name], f"{name} imports {count} others: change HUBS"
    elif name != COMPOSITION:
        assert count <= IMPORTS


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
