"""A failure may hide another one, which comes only once the first is remedied."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import zmq

from tests.support.calls import Connection, load, load_request, module_source, request
from tests.support.daemons import Daemon

COMPILER = """#!/bin/sh
case "$*" in
  *-fuse-ld=*-lc10*)
    echo "collect2: error: ld returned 1 exit status" >&2
    exit 1;;
  *-shared*-lc10*)
    mkdir {folder}/killed && kill -9 $$;;
esac
exec {real} "$@"
"""


def fallbacks(daemon: Daemon) -> int:
    found: dict[str, int] = daemon.status()["accelerators"]["linker"]["fallbacks"]
    return found.get("-fuse-ld=mold", 0)


def test_the_fast_linker_fails_and_then_the_own_one_is_killed(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path
) -> None:
    if not shutil.which("ld.bfd"):
        pytest.skip("needs binutils' linker")
    for name, text in (
        ("ld.mold", f'#!/bin/sh\nexec {shutil.which("ld.bfd")} "$@"\n'),
        ("c++", COMPILER.format(folder=tmp_path, real=shutil.which("c++"))),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    source = tmp_path / "one.cpp"
    source.write_text(module_source(7, "remedied"))
    variables = request().environment
    variables = {
        **variables, "PATH": f"{tmp_path}:{variables['PATH']}", "CXX": str(tmp_path / "c++")
    }  # fmt: skip
    before = fallbacks(daemon)
    wanted = load_request([source], module_name="remedied", environment=variables)
    answer = Connection(daemon, context).build(wanted)
    assert load(answer, "remedied").answer() == 7
    assert (tmp_path / "killed").is_dir()
    assert fallbacks(daemon) == before + 1
