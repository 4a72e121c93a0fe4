"""Folders of headers that are watched, for tests of header sets."""

from __future__ import annotations

import os
from pathlib import Path

from warmcc import digest
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.header_sets import Entry

YEAR_2001 = 10**18


class Shelf(dict[str, bytes]):
    """Header sets by digest, as the store keeps them."""

    def put(self, folders: dict[str, list[Entry]], names: tuple[str, ...] = ()) -> str:
        payload = header_sets.encode(names, folders)
        name = digest.of_bytes(payload)
        self[name] = payload
        return name


def entries(folder: Path, *names: str) -> list[Entry]:
    states = {name: (folder / name).stat() for name in names}
    return [Entry(name, state.st_size, state.st_mtime_ns) for name, state in states.items()]


def write(path: Path, text: str, mtime_ns: int = YEAR_2001) -> None:
    path.write_text(text)
    os.utime(path, ns=(mtime_ns, mtime_ns))


class Include:
    """A toolchain in small: two plain folders, one behind a link, a linked file and a file with two
    names.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.shelf = Shelf()
        for name in ("c++", "torch", "cuda-12", "cuda-13", "elsewhere"):
            (root / name).mkdir()
            for file in ("a.h", "b.h"):
                write(root / name / file, f"// {file}")
        (root / "cuda").symlink_to("cuda-12")
        (root / "torch/link.h").symlink_to("../elsewhere/a.h")
        os.link(root / "elsewhere/b.h", root / "torch/shared.h")
        write(root / "cuda-13/a.h", "// another a.h", YEAR_2001 + 5)
        self.names = {
            "c++": ("a.h", "b.h"),
            "torch": ("a.h", "link.h", "shared.h"),
            "cuda": ("a.h", "b.h"),
        }
        self.set = self.shelf.put(self.now())

    def now(self) -> dict[str, list[Entry]]:
        return {
            str(self.root / name): entries(self.root / name, *files)
            for name, files in self.names.items()
        }

    def truth(self) -> bool:
        try:
            return self.shelf.put(self.now()) == self.set
        except OSError:
            return False
