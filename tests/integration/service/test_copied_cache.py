"""A cache that was made somewhere else, as in a layer of an image: all files have other times and
inodes, in the cache and in the toolchain.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from warmcc.daemon.toolchain import known_contents
from warmcc.protocol import Built
from warmcc.request import Request

HEADER = "one.h"


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    """A folder whose headers are the toolchain's, as CUDA's are."""
    folder = tmp_path / "cuda"
    (folder / "include").mkdir(parents=True)
    (folder / "include" / HEADER).write_text("const int one = 1;\n")
    time.sleep(known_contents._SETTLED_NS / 1e9)  # it was installed some time ago
    return folder


def asked(toolkit: Path) -> Request:
    source = f"#include <{HEADER}>\n{module_source()}"
    made = request(cpp_sources=[source], extra_include_paths=[f"{toolkit}/include"])
    made.environment["CUDA_HOME"] = str(toolkit)
    return made


def outcome(daemon: Daemon, wanted: Request, context: zmq.Context[zmq.Socket[bytes]]) -> str:
    answer = Connection(daemon, context).build(wanted)
    assert isinstance(answer, Built), answer
    return answer.outcome


def copied(path: Path, to: Path) -> None:
    """A copy with new times."""
    shutil.copytree(path, to, copy_function=shutil.copyfile)
    for file in [path, *path.rglob("*")]:
        to.joinpath(file.relative_to(path)).chmod(file.stat().st_mode)


def as_in_an_image(toolkit: Path) -> None:
    copied(toolkit, toolkit.with_name("copy"))
    shutil.rmtree(toolkit)
    toolkit.with_name("copy").rename(toolkit)


@pytest.mark.parametrize("change", ["none", "another content", "another content of the same size"])
def test_it_serves_where_contents_are_the_same(
    toolkit: Path, change: str, fresh_daemon: Callable[..., Daemon],
    context: zmq.Context[zmq.Socket[bytes]],
) -> None:  # fmt: skip
    made = fresh_daemon()
    assert outcome(made, asked(toolkit), context) == "miss"
    made.stop()

    as_in_an_image(toolkit)
    if change != "none":
        value = "2" if "size" in change else "22"
        (toolkit / "include" / HEADER).write_text(f"const int one = {value};\n")
    other = fresh_daemon()
    other.stop()
    shutil.rmtree(other.cache_dir)
    copied(made.cache_dir, other.cache_dir)
    other.start()
    assert outcome(other, asked(toolkit), context) == ("hit" if change == "none" else "miss")
    assert outcome(other, asked(toolkit), context) == "hit"


def test_a_new_cache_begins_with_one_that_is_baked(
    toolkit: Path, fresh_daemon: Callable[..., Daemon], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    made = fresh_daemon()
    assert outcome(made, asked(toolkit), context) == "miss"
    made.stop()
    before = {path: path.stat().st_ctime_ns for path in made.cache_dir.rglob("*")}
    other = fresh_daemon(baked=str(made.cache_dir))
    assert outcome(other, asked(toolkit), context) == "hit"
    assert outcome(other, request(), context) == "miss"
    other.stop()
    assert {path: path.stat().st_ctime_ns for path in made.cache_dir.rglob("*")} == before


def test_a_baked_cache_that_is_not_there_is_said(fresh_daemon: Callable[..., Daemon]) -> None:
    with pytest.raises(AssertionError, match=r"baked: /nonexistent cannot be read: No such file"):
        fresh_daemon(baked="/nonexistent")
