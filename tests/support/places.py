"""A place to build in: a user's files and a toolchain's, for tests of closures."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from tests.support.shelf import Bench
from warmcc.daemon.closure import header_sets
from warmcc.daemon.closure.closure import Closure
from warmcc.daemon.closure.marker import Marker


class Place:
    """A folder with a user's files and a toolchain's, some time before a build."""

    def __init__(self, bench: Bench) -> None:
        self.root = bench.folder
        self.store = bench.store
        self.closures = bench.closures
        self.write("src/a.cpp", "int a;")
        self.write("first/other.h")
        self.write("own/a.h", "// of the user")
        self.write("theirs/deep/b.h", "// of the toolchain")

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def write(self, name: str, text: str = "") -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(10**18, 10**18))
        return str(path)

    def later(self) -> Marker:
        """A build that begins when all that is there has been there for long."""
        started = Marker.take(self.store.root / "staging")
        return msgspec.structs.replace(started, ns=started.ns + 10**9)

    def record(self, *names: str, started: Marker | None = None, **more: Any) -> Closure:
        more.setdefault("include_dirs", [self.path("first"), self.path("own"), self.path("theirs")])
        return self.closures.record(
            [self.path(name) for name in names],
            more.pop("roots", [self.path("theirs")]),
            more.pop("include_dirs"),
            started or self.later(),
            **more,
        )

    def headers_of(self, closure: Closure) -> header_sets.HeaderSet:
        (name,) = closure.headers
        found = header_sets.decoded(self.store.get_headers(name))
        assert found is not None
        return found
