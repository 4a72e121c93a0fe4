"""Precompiled headers that are stale, damaged, cut short, unfinished or deadly: the build succeeds,
and it is counted.

The headers here are the user's own and small, so that a precompiled header of them takes a moment.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.support.calls import Connection, load, request
from tests.support.daemons import Daemon
from warmcc import digest
from warmcc.daemon.pch import pch
from warmcc.protocol import Built, Cache

HEADER = """\
#pragma once
#include <Python.h>
#include <map>
#include <string>
#include <vector>
template <class T> T twice(T x) {{ return x + x; }}
inline long value() {{ return twice({value}L); }}
"""
SOURCE = """\
#include <mine.h>
static PyObject* answer(PyObject*, PyObject*) {{ return PyLong_FromLong(value() + {number}); }}
static PyMethodDef methods[] = {{
    {{"answer", answer, METH_NOARGS, ""}}, {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, methods}};
PyMODINIT_FUNC PyInit_{name}() {{ return PyModule_Create(&module); }}
"""


class Author:
    """Someone who builds one source after the other behind the same header."""

    def __init__(
        self, daemon: Daemon, folder: Path, context: zmq.Context[zmq.Socket[bytes]]
    ) -> None:
        self.daemon = daemon
        self._context = context
        self._connection = Connection(daemon, context)
        self._folder = folder
        self._number = 0
        self.loads = True
        self.header(20)

    def header(self, value: int) -> None:
        (self._folder / "mine.h").write_text(HEADER.format(value=value))
        self._value = value

    def build(self, **more: Any) -> Built:
        """Build a source that nobody has seen, and check what it gives."""
        self._number += 1
        name = f"mine{self._number}"
        wanted = request(
            name=name,
            module_name=name,
            cpp_sources=[SOURCE.format(name=name, number=self._number)],
            extra_include_paths=[str(self._folder)],
            **more,
        )
        answer = self._connection.build(wanted)
        assert isinstance(answer, Built), answer
        assert not self.loads or load(answer, name).answer() == 2 * self._value + self._number
        return answer

    def restart(self, meanwhile: Callable[[Path], None]) -> None:
        """Stop the daemon, do something to the precompiled header, and start it again."""
        (gch,) = (self.daemon.cache_dir / "profiles").glob("*/prelude.h.gch")
        self.daemon.stop()
        meanwhile(gch)
        self.daemon.start()
        self._connection = Connection(self.daemon, self._context)

    def counts(self) -> dict[str, int]:
        found: dict[str, int] = self.daemon.status()["accelerators"]["pch"]["fallbacks"]
        return found

    def used(self) -> int:
        return int(self.daemon.status()["accelerators"]["pch"]["used"])

    def warm(self) -> pch.Profile:
        """Have the precompiled header built (when it is wanted for the second time) and used once;
        the profile.
        """
        self.build()
        self.build()
        self.daemon.wait_for_profiles(1)
        before = self.used()
        self.build()
        assert self.used() == before + 1, self.daemon.log()
        (folder,) = (self.daemon.cache_dir / "profiles").iterdir()
        record = pch.read_record(folder)
        assert record is not None
        return pch.Profile(
            folder.name, folder, record.flags, tuple(record.headers), "ready", record
        )


@pytest.fixture
def author(
    fresh_daemon: Callable[..., Daemon], tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> Author:
    return Author(fresh_daemon(ccache=False), tmp_path, context)


@pytest.mark.slow
def test_clearing_the_cache_takes_no_precompiled_header(author: Author) -> None:
    author.loads = False  # what is loaded is in use, and stays with all that it needs
    author.warm()
    author.restart(lambda _: None)  # what the daemon handed out before is not in use now
    author.daemon.ask(Cache(1, "clear"))
    author.restart(lambda _: None)
    author.build()
    assert (author.used(), author.counts()) == (1, {}), author.daemon.log()


@pytest.mark.slow
def test_a_touched_header(author: Author) -> None:
    author.warm()
    author.header(30)
    author.build()
    assert author.counts() == {"a header changed": 1}
    author.build()
    author.daemon.wait_for_profiles(1)
    before = author.used()
    author.build()
    assert author.used() == before + 1, "it was not built anew"


def flip(path: Path) -> None:
    with open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        for _ in range(8):
            file.seek(random.Random(size).randrange(size))
            byte = file.read(1)
            file.seek(-1, os.SEEK_CUR)
            file.write(bytes([byte[0] ^ 1 << random.randrange(8)]))


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.slow
def test_damage(author: Author) -> None:
    """Bits flipped, cut short, emptied, removed: while the daemon runs, and (bits) while it is
    away.
    """
    gch = author.warm().gch
    for number, harm in enumerate([flip, cut, empty, os.unlink], start=1):
        harm(gch)
        author.build()
        author.daemon.wait_for_profiles()
        assert sum(author.counts().values()) == number, (harm, author.counts())
        author.build()
        author.daemon.wait_for_profiles(1)
        before = author.used()
        author.build()
        assert author.used() == before + 1, "it was not built anew"
    assert author.counts() == {"damaged": 3, "missing": 1}
    author.restart(flip)
    author.build()
    author.daemon.wait_for_profiles()
    assert author.counts() == {"damaged": 1}


@pytest.mark.slow
def test_a_compiler_that_crashes_on_its_precompiled_header(author: Author) -> None:
    """Damage that was there when the digest was taken: g++ itself has to find out, in its own
    way.
    """
    profile = author.warm()
    assert profile.record is not None

    def harm(gch: Path) -> None:
        with open(gch, "r+b") as file:
            file.seek(profile.size // 4)
            file.write(random.Random(1).randbytes(profile.size // 2))
        record = msgspec.structs.replace(
            profile.record, sha256=digest.of_file(gch), stat=pch.fingerprint(gch)
        )
        pch.write_record(profile.folder, record)

    author.restart(harm)
    author.build()
    assert author.counts() == {"a compile failed with it": 1}, author.daemon.log()


@pytest.mark.slow
def test_a_plugin_that_cannot_be_loaded(author: Author) -> None:
    profile = author.warm()
    assert profile.record is not None
    assert profile.record.finished
    (plugin,) = (author.daemon.cache_dir / "plugins").glob("*/finish.so")
    plugin.write_bytes(b"no library")
    for _ in range(2):
        author.build(extra_cflags=["-O1"])
    author.daemon.wait_for_profiles(2)
    before = author.used()
    author.build(extra_cflags=["-O1"])
    assert author.used() == before + 1
    assert author.counts() == {"finished PCH failed": 1}
    assert sorted(one["finished"] for one in author.daemon.status()["profiles"]) == [False, True]


@pytest.mark.slow
def test_a_plugin_that_does_not_compile(
    fresh_daemon: Callable[..., Daemon], tmp_path: Path, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """The folder for plugins cannot be made: the reason is shown, and headers are precompiled
    without.
    """
    daemon = Daemon()
    try:
        daemon.cache_dir.mkdir(mode=0o700)
        (daemon.cache_dir / "plugins").write_text("a file in its place")
        author = Author(daemon.start(), tmp_path, context)
        author.warm()
        status = daemon.status()
        assert [one["finished"] for one in status["profiles"]] == [False]
        assert len(status["accelerators"]["pch"]["unfinished"]) == 1
        daemon.stop()
    finally:
        daemon.discard()
