"""Which units have a profile in common, with a real toolchain and stock torch's own flags."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch

from tests.support.calls import interpreter, request
from warmcc.daemon.pch.matching import Matcher
from warmcc.daemon.plan import requested
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.wanted import wanted
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.identity import Toolchains

HEADERS = ("torch/extension.h",)


@pytest.fixture
def toolkit(tmp_path: Path) -> Path:
    (tmp_path / "cuda/include").mkdir(parents=True)
    (tmp_path / "cuda/include/cuda_runtime.h").touch()
    return tmp_path / "cuda"


def profile(
    toolkit: Path, cflags: str, users: str = "", *, headers: tuple[str, ...] = HEADERS,
    failed: frozenset[str] = frozenset(),
) -> str:  # fmt: skip
    """The key of the profile that a C++ unit with these flags has, where CUDA_HOME is set; those of
    the ``users`` are among them. Those with the keys ``failed`` could not be built."""
    variables = {**request().environment, "CUDA_HOME": str(toolkit)}
    asked = request(environment=variables, extra_cflags=users.split())
    environment = requested.build_environment(asked)
    toolchain: Toolchain = asyncio.run(Toolchains().identify(environment, "c++", interpreter()))
    cflags = f"-isystem {toolchain.torch_dir}/include {cflags} -fPIC {users}"
    plan = Plan(ninja="", sources={}, warnings=[], scratch="", cflags=cflags)
    one = wanted(asked, toolchain, plan)
    assert one is not None
    return Matcher(lambda key: None, failed.__contains__).identify(one, headers)[0]


def test_cuda_s_headers_make_no_profile_of_their_own(toolkit: Path) -> None:
    """Stock adds them with ``with_cuda``, and torch's headers for C++ never look into them."""
    with_cuda = f"-isystem {toolkit}/include"
    assert profile(toolkit, with_cuda) == profile(toolkit, "")


def test_unless_one_would_be_found_in_place_of_torchs(toolkit: Path) -> None:
    (toolkit / "include/torch").mkdir()
    with_cuda = f"-isystem {toolkit}/include"
    assert profile(toolkit, with_cuda) != profile(toolkit, "")


@pytest.mark.parametrize(
    "header",
    [
        "c10/cuda/CUDAStream.h", "ATen/cuda/detail/KernelUtils.h", "ATen/native/cuda/Resize.h",
        "torch/csrc/cuda/comm.h", "ATen/cudnn/Handle.h",
    ],
)  # fmt: skip
def test_unless_one_of_torchs_includes_cuda_s(toolkit: Path, header: str) -> None:
    with_cuda = f"-isystem {toolkit}/include"
    headers = (*HEADERS, header)
    assert profile(toolkit, with_cuda, headers=headers) != profile(toolkit, "", headers=headers)


def test_what_could_not_be_built_without_the_folders_is_tried_with_them(
    toolkit: Path, tmp_path: Path
) -> None:
    """A header may include one that lies in a folder of the caller's."""
    theirs = f"-I{tmp_path}"
    alone = profile(toolkit, "", theirs)
    assert alone == profile(toolkit, "")
    again = profile(toolkit, "", theirs, failed=frozenset([alone]))
    assert again != alone
    assert profile(toolkit, "", failed=frozenset([alone])) == alone
    assert profile(toolkit, "", theirs, failed=frozenset([alone, again])) == again


def test_the_folder_of_a_project_makes_no_profile_of_its_own(toolkit: Path) -> None:
    """``pip`` builds each package in a folder with a random name."""
    assert profile(toolkit, "-ffile-prefix-map=/tmp/pip-req-build-a1/=") == profile(toolkit, "")


def test_unless_torch_or_the_compiler_lies_in_it(toolkit: Path) -> None:
    for folder in (Path(torch.__file__).parents[1], "/usr"):
        assert profile(toolkit, f"-ffile-prefix-map={folder}/=") != profile(toolkit, "")


@pytest.mark.parametrize(
    ("macro", "own"), [("-DTORCH_API_INCLUDE_EXTENSION_H", True), ("-DSCALE=3", False)]
)
def test_macros_of_a_setup_py(toolkit: Path, macro: str, own: bool) -> None:
    """The first is in every one: `torch/torch.h` looks for it, and g++ would refuse the precompiled
    header that does without it, after a minute."""
    assert (profile(toolkit, "", macro) != profile(toolkit, "")) == own
