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


def test_a_compiler_is_the_same_by_each_of_its_names(tmp_path: Path) -> None:
    real = os.path.realpath(shutil.which("g++") or "")
    if not os.path.isfile(real):
        pytest.skip("needs g++")
    for name in ("one++", "other++"):
        (tmp_path / name).symlink_to(real)
    wrapped = tmp_path / "wrapped++"
    wrapped.write_text(f'#!/bin/sh\nexec {real} -fno-inline "$@"\n')
    wrapped.chmod(0o755)
    found = {
        name: asyncio.run(Toolchains().identify(dict(os.environ), f"{name}", interpreter())).digest
        for name in (real, *map(str, tmp_path.iterdir()), f"{tmp_path}/one++ -fno-inline")
    }
    assert found.pop(str(wrapped)) not in found.values()
    assert found.pop(f"{tmp_path}/one++ -fno-inline") not in found.values()
    assert len(found) == 3 and len(set(found.values())) == 1


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


def test_one_that_fails_after_it_said_what_it_read_is_not_used(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """As gold does, at a link that leads nowhere in a folder of libraries."""
    if shutil.which("ld.mold") or not shutil.which("ld.bfd"):
        pytest.skip("needs binutils' linker, and no mold")
    before = identified(Toolchains(), environment)
    place = tmp_path / "ld.mold"
    place.write_text(
        "#!/bin/sh\nfor word; do case $word in\n"
        '--dependency-file=*) touch "${word#*=}";;\nesac; done\nexit 1\n'
    )
    place.chmod(0o755)
    after = identified(Toolchains(), environment)
    assert asked(environment, "-fuse-ld=mold") == 2
    assert after.linkers == before.linkers


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
