"""The index of names: what no header of a toolchain mentions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warmcc.daemon.system.background import Background
from warmcc.daemon.system.bounds import Reasons
from warmcc.daemon.system.permits import Permits, Share
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain.header_names import HeaderNames, is_line


@pytest.fixture
def toolchain(tmp_path: Path) -> Any:
    """One whose headers are below a folder; one of its folders is missing."""
    texts = {
        "torch/include/ATen/a.h": "#ifdef IN_TORCH  // IN_COMMENT\nint a1;\n",
        "cuda/b.h": "#define IN_CUDA PART_ ## OF\n",
        "python/Python.h": "int PyLong;\n",
        "cuda_top/bin/nvcc": "IN_PROGRAM",
        "c++/c": "struct without_ending;",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    cuda = SimpleNamespace(include_folders=([str(tmp_path / "cuda")], [str(tmp_path / "missing")]))
    return SimpleNamespace(
        digest="d", torch_dir=str(tmp_path / "torch"), cuda=cuda,
        include_folders=[str(tmp_path / "c++")],
        roots=[str(tmp_path / name) for name in ("c++", "torch", "python", "cuda_top")],
    )  # fmt: skip


def mentioned(
    root: Path, toolchain: Any, names: set[str], reasons: Reasons | None = None,
    *, torch_alone: bool = False,
) -> set[str]:  # fmt: skip
    with contextlib.closing(Runner()) as runner:
        index = HeaderNames(root, runner, Reasons() if reasons is None else reasons)
        return asyncio.run(index.mentioned(toolchain, names, torch_alone=torch_alone))


THERE = {"IN_TORCH", "IN_COMMENT", "IN_CUDA", "PART_", "a1", "PyLong", "without_ending"}


def test_names_of_all_headers_are_in_it(tmp_path: Path, toolchain: Any) -> None:
    asked = THERE | {"NOWHERE", "IN", "a", "PART_OF", "without", "IN_PROGRAM"}
    assert mentioned(tmp_path / "names", toolchain, asked) == THERE
    toolchain.cuda = None
    assert mentioned(tmp_path / "names", toolchain, asked) == THERE - {"IN_CUDA", "PART_"}


def test_those_of_torchs_headers_alone(tmp_path: Path, toolchain: Any) -> None:
    root = tmp_path / "names"
    assert mentioned(root, toolchain, THERE, torch_alone=True) == {"IN_TORCH", "IN_COMMENT", "a1"}
    assert mentioned(root, toolchain, THERE) == THERE


def test_names_of_many_files_are_in_it(tmp_path: Path, toolchain: Any) -> None:
    """Several processes list them, and none writes into what another has written."""
    asked = set()
    for number in range(900):
        names = {f"name_{number}_{letter}" for letter in "abcdefghij"}
        (tmp_path / "cuda" / f"{number}.h").write_text("\n".join(names))  # the last is not ended
        asked |= names
    assert mentioned(tmp_path / "names", toolchain, asked) == asked


def test_it_is_made_once_for_a_toolchain(tmp_path: Path, toolchain: Any) -> None:
    root = tmp_path / "names"
    mentioned(root, toolchain, {"a"})
    (made,) = root.iterdir()
    before = made.stat().st_ino
    assert mentioned(root, toolchain, THERE) == THERE
    assert [path.stat().st_ino for path in root.iterdir()] == [before]
    toolchain.digest = "another"
    mentioned(root, toolchain, {"a"})
    assert len(list(root.iterdir())) == 2


def test_a_header_that_changes_is_read_again(tmp_path: Path, toolchain: Any) -> None:
    async def main() -> None:
        with contextlib.closing(Runner()) as runner:
            index = HeaderNames(tmp_path / "names", runner, Reasons())
            names = {"LATER", "a1"}
            assert await index.mentioned_now(toolchain, names) == {"a1"}
            (made,) = (tmp_path / "names").iterdir()
            before = made.stat().st_ino
            assert await index.mentioned_now(toolchain, names) == {"a1"}
            assert made.stat().st_ino == before
            header = tmp_path / "torch/include/ATen/a.h"
            old = header.stat()
            header.write_text("#ifdef LATER\n")
            os.utime(header, ns=(old.st_atime_ns, old.st_mtime_ns))  # as some tools leave it
            assert await index.mentioned(toolchain, names) == {"a1"}
            assert await index.mentioned_now(toolchain, names) == {"LATER"}
            assert await index.mentioned(toolchain, names) == {"LATER"}
            assert [path.name for path in (tmp_path / "names").iterdir()] == [made.name]
            (tmp_path / "torch/include/ATen/new.h").write_text("int new_one;\n")
            assert await index.mentioned_now(toolchain, {"new_one"}) == {"new_one"}
            shutil.rmtree(made)  # as who clears the cache
            header.write_text("int after;\n")
            assert await index.mentioned_now(toolchain, {"after", "LATER"}) == {"after"}

    asyncio.run(main())


def test_without_it_every_name_may_be_in_a_header(
    tmp_path: Path, toolchain: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))  # no grep
    assert os.path.exists("/bin/sh")
    reasons = Reasons()
    assert mentioned(tmp_path / "names", toolchain, {"NOWHERE"}, reasons) == {"NOWHERE"}
    assert reasons == {"no index of header names": 1}
    assert list((tmp_path / "names").iterdir()) == [], "nothing is left behind"


def test_made_ahead_it_gives_way_to_builds_until_a_unit_asks(
    tmp_path: Path, toolchain: Any
) -> None:
    async def main() -> set[str]:
        permits = Permits(2, 1)
        place = Background(permits)
        giving_way = asyncio.create_task(place.run())
        with contextlib.closing(Runner(background=place)) as runner:
            index = HeaderNames(tmp_path / "names", runner, Reasons())
            async with permits.hold(share := Share("client", 2)), permits.hold(share):
                ahead = asyncio.create_task(index.prepare(toolchain))
                await asyncio.wait([ahead], timeout=1.0)
                assert not ahead.done() and not index.are_known
                asked = (
                    index.mentioned(toolchain, {*THERE, "NO"}, torch_alone=alone)
                    for alone in (False, True)  # the second waits for both
                )
                found, of_torch = await asyncio.wait_for(asyncio.gather(*asked), 30)
                assert of_torch < found
                await ahead
            assert index.are_known
        giving_way.cancel()
        await asyncio.gather(giving_way, return_exceptions=True)
        return found

    assert asyncio.run(main()) == THERE


@given(st.sets(st.text("abB_1", max_size=4)), st.text("abB_1", max_size=4))
def test_lines_are_found_in_sorted_text(names: set[str], asked: str) -> None:
    lines = b"".join(f"{name}\n".encode() for name in sorted(names))
    assert is_line(asked.encode(), lines) == (asked in names)
    assert all(is_line(name.encode(), lines) for name in names)
