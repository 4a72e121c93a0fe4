"""A user's project and a toolchain, for tests of closures."""

from __future__ import annotations

import os
import time
from pathlib import Path

from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.closure.marker import Marker
from warmcc.daemon.store import Store

# What some files ask for with __has_include.
ASKING = {
    "src/own.h": "\n#if __has_include(<asked/for.h>)\n#endif",
    "include/plain.h": '\n#define HAS(x) __has_include(x)\n#if HAS("through.h")\n#endif',
    "toolchain/usr/vector": "\n#if __has_include(<theirs.h>)\n#endif",
}


class Project:
    """A user's project (a source, a header of its own, one found by -I) and a toolchain with
    headers.

    Searched in this order: first, include (both the user's), toolchain/torch, last (the user's),
    toolchain/usr.
    """

    def __init__(self, root: Path, watching: bool = True) -> None:
        self.root = root
        for name in (
            "src/ext.cpp", "src/own.h", "include/lib/used.h", "include/lib/deep/far.h",
            "include/plain.h", "first/lib/other.h", "last/x.h", "toolchain/torch/torch/extension.h",
            "toolchain/torch/ATen/ATen.h", "toolchain/usr/vector",
        ):  # fmt: skip
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"// {name}{ASKING.get(name, '')}")
        self.read = [
            str(root / name)
            for name in (
                "src/ext.cpp", "src/own.h", "include/lib/used.h", "include/lib/deep/far.h",
                "include/plain.h", "toolchain/torch/torch/extension.h",
                "toolchain/torch/ATen/ATen.h", "toolchain/usr/vector",
            )
        ]  # fmt: skip
        self.searched = [
            str(root / name)
            for name in ("first", "include", "toolchain/torch", "last", "toolchain/usr")
        ]
        self.store = Store(root / "store", 1 << 30)
        self.watch = HeaderWatch(self.store.get_headers, watching=watching)
        self.closures = Closures(self.store, self.watch)

    def mark(self) -> Marker:
        return Marker.take(
            self.store.root / "staging", [path for path in self.read if os.path.exists(path)]
        )

    def record(self, started: Marker | None = None, paths: list[str] | None = None) -> Closure:
        return self.closures.record(
            self.read if paths is None else paths,
            [str(self.root / "toolchain")],
            self.searched,
            started or self.mark(),
        )

    def write(self, name: str, text: str = "new") -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def let_the_clock_tick() -> None:
    """What was written just now would seem to have been written during the build."""
    time.sleep(0.02)


def swap_link(project: Project) -> None:
    (project.root / "next").symlink_to("include-2")
    os.replace(project.root / "next", project.root / "include")
