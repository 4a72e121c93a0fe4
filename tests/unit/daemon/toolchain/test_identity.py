"""What is asked of a compiler to know it, with real compilers behind one that tells."""

from __future__ import annotations

import asyncio
import os
import shutil
from pathlib import Path

import pytest

from tests.support.calls import interpreter
from warmcc.daemon.toolchain import Toolchain, cuda
from warmcc.daemon.toolchain.identity import Toolchains


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """One whose c++ writes down with what it is called."""
    place = tmp_path / "c++"
    place.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/asked\nexec {shutil.which("c++")} "$@"\n')
    place.chmod(0o755)
    return {"PATH": f"{tmp_path}:{os.environ['PATH']}"}


def asked(environment: dict[str, str], part: str) -> int:
    """How often the compiler was called with these words."""
    log = Path(environment["PATH"].partition(":")[0], "asked")
    return sum(part in line for line in log.read_text().splitlines())


def identified(toolchains: Toolchains, environment: dict[str, str], **more: bool) -> Toolchain:
    return asyncio.run(toolchains.identify(environment, "c++", interpreter(), **more))


def test_linkers_that_are_not_there_are_not_tried(
    environment: dict[str, str], tmp_path: Path
) -> None:
    if shutil.which("ld.mold") or not shutil.which("ld.bfd"):
        pytest.skip("needs binutils' linker, and no mold")
    before = identified(Toolchains(), environment)
    assert asked(environment, "-fuse-ld=mold") == 0
    place = tmp_path / "ld.mold"
    place.write_text(f'#!/bin/sh\nexec {shutil.which("ld.bfd")} "$@"\n')
    place.chmod(0o755)
    after = identified(Toolchains(), environment)
    assert asked(environment, "-fuse-ld=mold") == 1
    assert [one.option for one in after.linkers] == [
        "-fuse-ld=mold",
        *(one.option for one in before.linkers),
    ]


def test_one_that_appears_is_found(environment: dict[str, str], tmp_path: Path) -> None:
    if shutil.which("ld.mold") or not shutil.which("ld.bfd"):
        pytest.skip("needs binutils' linker, and no mold")
    toolchains = Toolchains()
    before = identified(toolchains, environment)
    assert identified(toolchains, environment) is before
    shutil.copy(shutil.which("ld.bfd") or "", tmp_path / "ld.mold")
    assert identified(toolchains, environment).linkers[0].option == "-fuse-ld=mold"


def test_what_is_known_of_cpp_is_not_asked_again_for_cuda(environment: dict[str, str]) -> None:
    environment["CUDA_HOME"] = "/usr/local/cuda"
    if cuda.nvcc(environment) is None:
        pytest.skip("needs nvcc")
    toolchains = Toolchains()
    plain = identified(toolchains, environment)
    links = asked(environment, "-shared")
    both = identified(toolchains, environment, with_cuda=True)
    assert asked(environment, "-shared") == links > 0
    assert plain.cuda is None and both.cuda is not None
    assert both.digest == plain.digest and both.linkers == plain.linkers
    assert set(plain.roots) < set(both.roots)
    assert identified(Toolchains(), environment, with_cuda=True) == both
