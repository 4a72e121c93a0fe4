"""A bundle with kernels: made with nvcc, and loaded without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import warmcc
from tests.support.bundling import Target, can_be_alone, members
from tests.support.calls import module_source
from tests.support.cuda import CudaDaemon
from warmcc.client.bundles import layout
from warmcc.client.connection import session

pytestmark = pytest.mark.ci
KERNEL = "__global__ void scale(float* x) { x[threadIdx.x] *= 2; }\n"
ARGUMENTS = "'kernels', {0!r}, cuda_sources={1!r}, no_implicit_headers=True"


@pytest.fixture(scope="module")
def daemon(nvcc: str) -> Iterator[CudaDaemon]:
    started = CudaDaemon(cuda_warm=False)
    try:
        started.start()
        yield started
        started.stop()
    finally:
        started.discard()


def test_kernels(daemon: CudaDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    session.forget()
    source = module_source(5, "kernels")
    built = warmcc.build_inline(
        "kernels", source, cuda_sources=KERNEL, no_implicit_headers=True,
        architectures=["9.0", "8.0+PTX"],
    )  # fmt: skip
    warmcc.pack(tmp_path / "kernels.tar.gz", [built])
    session.forget()
    index = dict(members(tmp_path / "kernels.tar.gz"))[layout.INDEX]
    (entry,) = msgspec.json.decode(index, type=layout.Index).entries
    assert entry.needs.architectures == ["compute_80", "sm_80", "sm_90"]
    assert not any(name.startswith("libcuda.") for name in entry.needs.libraries)
    target = Target(tmp_path / "target")
    done = target.warmcc("unpack", str(tmp_path / "kernels.tar.gz"))
    assert done.returncode == 0, done.stderr
    call = f"import warmcc; print(warmcc.load_inline({ARGUMENTS.format(source, KERNEL)}).answer())"
    done = target.run("-c", call, alone=can_be_alone())
    assert (done.stdout, done.returncode) == ("5\n", 0), done.stderr
    other = call.replace("*= 2", "*= 3")
    assert "differs in: cuda_sources\n" in target.run("-c", other).stderr
