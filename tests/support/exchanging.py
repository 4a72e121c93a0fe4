"""Machines that exchange results by a remote store, for unit tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import calls
from tests.support.closures import Project, let_the_clock_tick
from warmcc import digest
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.closure.header_watch import HeaderWatch
from warmcc.daemon.remote.exchange import Exchange
from warmcc.daemon.remote.header_contents import HeaderContents
from warmcc.daemon.remote.places import opened
from warmcc.daemon.store import REQUEST, Store
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.toolchain.known_contents import KnownContents
from warmcc.request import Request

KEY = digest.of_bytes(b"a request")
META = {"commands": ["g++"], "sources": {"main.cpp": "int f();"}, "warnings": [], "way": "lean way"}
CONTENT = b"\x7fELF" + bytes(range(256)) * 50


class Machine:
    """A daemon's store beside a project, and a remote store in a folder."""

    def __init__(self, project: Project, folder: Path, **exchange: Any) -> None:
        self.project = project
        self.remote = project.root.parent / "remote"
        self.store = Store(folder / "store", 1 << 30)
        self.known = KnownContents()
        self.watch = HeaderWatch(self.store.get_headers, self.known, watching=False)
        self.closures = Closures(self.store, self.watch)
        self.trust = Trust(folder / "withdrawn.json", self.store)
        self.exchange = Exchange(
            opened(str(self.remote), signed=False), self.store, self.closures,
            HeaderContents(self.store, self.known), self.trust,
            exchange.get("signer"), exchange.get("trusted", []),
        )  # fmt: skip

    @property
    def request(self) -> Request:
        source = self.project.root / "src" / "ext.cpp"
        return calls.load_request([source], name="ext", module_name="ext")

    def build(self, content: bytes = CONTENT, **meta: Any) -> None:
        """Publish what would be built now."""
        let_the_clock_tick()
        marker = self.project.mark()
        closure = self.closures.record(
            self.project.read, [str(self.project.root / "toolchain")], self.project.searched, marker
        )
        made = self.store.root.parent / "made"
        made.write_bytes(content)
        about = {**META, "makers": ["lean-1"], REQUEST: {"environment": "private"}, **meta}
        self.store.publish("artifact", KEY, made, "ext.so", closure, about)

    def give(self) -> bool:
        return self.exchange.give(self.request, KEY)

    def take(self) -> bytes | None:
        found = self.exchange.take(self.request, KEY)
        assert (found is None) == (self.store.find("artifact", KEY, self.closures) is None)
        return None if found is None else found[1].read_bytes()

    def files(self, folder: str) -> list[Path]:
        return sorted(path for path in (self.remote / "v1" / folder).rglob("*") if path.is_file())


def headers(project: Project) -> Iterator[Path]:
    return (path for path in (project.root / "toolchain").rglob("*") if path.is_file())
