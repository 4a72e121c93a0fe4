"""A store to test: with closures that it can check, and a folder for what is to be published."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

from warmcc import digest
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.closure import Closure, Closures
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.store import Kind, Result, Store

GIB = 1 << 30


def key(text: str) -> str:
    return digest.of_bytes(text.encode())


class Bench:
    """A store, closures that it can check, and a folder for what is to be published."""

    def __init__(self, folder: Path, grace: float = 0.0) -> None:
        self.folder = folder
        self.store = Store(folder / "store", GIB, grace=grace)
        self.watch = HeaderWatch(self.store.get_headers, watching=False)
        self.closures = Closures(self.store, self.watch)

    def again(self) -> None:
        """The same folder after a restart of the daemon."""
        self.store = Store(self.folder / "store", GIB, grace=0.0)
        self.watch = HeaderWatch(self.store.get_headers, watching=False)
        self.closures = Closures(self.store, self.watch)

    def publish(
        self, name: str, content: bytes = b"", closure: Closure | None = None, *,
        unit: bool = False, **meta: Any,
    ) -> tuple[Result, Path]:  # fmt: skip
        made = self.folder / f"made-{threading.get_ident()}"
        made.write_bytes(content or name.encode())
        kind: Kind = "unit" if unit else "artifact"
        return self.store.publish(
            kind,
            key(name),
            made,
            "" if unit else f"{name}.so",
            closure or Closure(),
            {"commands": [name], **meta},
        )

    def find(self, name: str, *, unit: bool = False) -> bytes | None:
        found = self.store.find("unit" if unit else "artifact", key(name), self.closures)
        return None if found is None else found[1].read_bytes()

    def depend(self, name: str, text: str) -> Closure:
        """A closure that holds while the file ``name`` contains ``text``; it does now."""
        path = self.folder / name
        path.write_text(text)
        return Closure(files={str(path): key(text)})

    def header_set(self, name: str) -> str:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "a.h").touch()
        state = (folder / "a.h").stat()
        entry = header_sets.Entry("a.h", state.st_size, state.st_mtime_ns)
        return self.store.put_headers(header_sets.encode([], {str(folder): [entry]}))

    def used(self, name: str, seconds_ago: float, *, unit: bool = False) -> None:
        path = self.manifest(name, unit=unit)
        os.utime(path, (time.time() - seconds_ago,) * 2)

    def manifest(self, name: str, *, unit: bool = False) -> Path:
        kind = "unit" if unit else "artifact"
        return self.store.root / "results" / kind / key(name)[:2] / key(name)

    def files(self) -> list[Path]:
        """All that is published."""
        return sorted(
            path
            for folder in ("results", "objects", "artifacts", "headers")
            for path in (self.store.root / folder).rglob("*")
            if path.is_file()
        )


def usage_is_true(store: Store) -> bool:
    """Whether the running totals are what counting anew gives."""
    before = store.usage()
    return before == Store(store.root, GIB).usage() | {"quarantined": before["quarantined"]}
