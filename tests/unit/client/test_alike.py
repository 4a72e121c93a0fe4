"""Which sources of a ``setup.py`` are still to be compiled."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from setuptools import Distribution, Extension
from setuptools.command.build_ext import build_ext

from warmcc.client.calls import alike


def announce(*extensions: Extension, force: bool = False) -> None:
    command = build_ext(Distribution({"ext_modules": list(extensions)}))
    command.inplace, command.force = True, force
    command.ensure_finalized()
    alike.announce(command)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("a.cpp", "b.cpp", "c.cu", "d.cpp"):
        (tmp_path / name).touch()
    return tmp_path


def paths(folder: Path, *names: str) -> list[str]:
    return [str(folder / name) for name in names]


def test_an_object_that_is_newer_is_not_made(folder: Path) -> None:
    announce()
    sources = paths(folder, "a.cpp", "b.cpp", "c.cu")
    objects = paths(folder, "a.o", "b.o", "c.o")
    given = {"sources": sources, "objects": objects}
    assert alike.to_compile(given) == paths(folder, "a.cpp", "b.cpp")
    (folder / "a.o").touch()
    os.utime(folder / "a.o", (2e9, 2e9))
    assert alike.to_compile(given) == paths(folder, "b.cpp")


def test_extensions_with_the_same_flags(folder: Path) -> None:
    one = Extension("one", ["a.cpp", "c.cu"], extra_compile_args=["-O2"])
    two = Extension("two", ["b.cpp"], extra_compile_args=["-O2"])
    other = Extension("other", ["d.cpp"], extra_compile_args=["-O3"])
    announce(one, two, other)
    given = {"sources": paths(folder, "a.cpp", "c.cu"), "objects": paths(folder, "a.o", "c.o")}
    assert alike.to_compile(given) == paths(folder, "a.cpp", "b.cpp")
    assert alike.with_flags_of(paths(folder, "d.cpp")) == paths(folder, "d.cpp")
    assert alike.with_flags_of(paths(folder, "e.cpp")) == []


def test_an_extension_that_is_newer_is_not_built(folder: Path) -> None:
    one, two = Extension("one", ["a.cpp"]), Extension("two", ["b.cpp"])
    announce(one, two)
    made = Path(build_ext(Distribution()).get_ext_filename("two"))
    (folder / made).touch()
    os.utime(folder / made, (2e9, 2e9))
    announce(one, two)
    assert alike.with_flags_of(paths(folder, "a.cpp")) == paths(folder, "a.cpp")
    announce(one, two, force=True)
    assert alike.with_flags_of(paths(folder, "a.cpp")) == paths(folder, "a.cpp", "b.cpp")


def test_what_is_no_extension(folder: Path) -> None:
    announce(Extension("one", ["a.cpp"]))
    alike.announce(object())
    assert alike.with_flags_of(paths(folder, "a.cpp")) == []
