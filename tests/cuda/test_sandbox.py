"""CUDA units in the sandbox: the warm levels stay on, and no step sees more than a unit's
inputs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.support.calls import Connection, load_request, request
from tests.support.cuda import CudaDaemon
from tests.support.daemons import running
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.protocol import Built, Failed
from warmcc.request import Request

Context = zmq.Context[zmq.Socket[bytes]]
pytestmark = pytest.mark.skipif(Sandbox.missing() is not None, reason=Sandbox.missing() or "")
# Without torch, what is warm for it is made in seconds.
UNIT = (
    "#include <cuda_runtime.h>\n__global__ void fill(float* p) { p[threadIdx.x] *= NUMBER.0f; }\n"
)


def unit(number: int, more: str = "") -> Request:
    text = UNIT.replace("NUMBER", str(number)) + more
    return request(cpp_sources=[""], cuda_sources=[text], is_python_module=False)


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sandbox")
    (folder / "secret.h").write_text('#error "the secret was read"\n')
    (folder / "roots").mkdir()
    return folder / "roots"


@pytest.fixture(scope="module")
def sandboxed(nvcc: str, roots: Path) -> Iterator[CudaDaemon]:
    one = CudaDaemon(sandbox=True, sandbox_roots=[str(roots)], pch=False, sample_after=0.5)
    running.append(one)
    try:
        one.start()
        with zmq.Context() as context:
            connection = Connection(one, context)
            assert isinstance(
                connection.build(unit(1)), Built
            )  # by nvcc itself, which has the rest made warm
            connection.close()
        one.wait_for_cuda()
        yield one
        one.stop()
    finally:
        running.remove(one)
        one.discard()


def test_the_warm_levels_stay_on(sandboxed: CudaDaemon, roots: Path, context: Context) -> None:
    connection = Connection(sandboxed, context)
    before = sandboxed.cuda()["used"]
    for number in (2, 3):
        assert isinstance(connection.build(unit(number)), Built)
    # The daemon does not read a caller's headers for itself there, and one of them may include
    # torch.
    source = roots / "a.cu"
    (roots / "beside.h").write_text("#define BESIDE 4\n")
    source.write_text(
        UNIT.replace("NUMBER.0f", "BESIDE").replace("__global__", '#include "beside.h"\n__global__')
    )
    assert isinstance(connection.build(load_request([source], is_python_module=False)), Built)
    used = sandboxed.cuda()["used"]
    assert used["warm"] == before.get("warm", 0) + 2, sandboxed.cuda()
    assert used["exact"] == before.get("exact", 0) + 1, sandboxed.cuda()
    deadline = time.monotonic() + 60
    while "CUDA same" not in (samples := sandboxed.status()["accelerators"]["samples"]):
        assert time.monotonic() < deadline, samples
        time.sleep(0.2)


@pytest.mark.parametrize(
    "read",
    [
        '#include "{}"\n', '#if __has_include("{0}")\n#include "{0}"\n#endif\n#include "{0}"\n',
        'asm(".incbin \\"{}\\"");\n', 'asm(".include \\"{}\\"");\n',
    ],
    ids=["include", "has_include", "incbin", "assembler"],
)  # fmt: skip
def test_a_unit_reads_nothing_that_is_no_input(
    read: str, sandboxed: CudaDaemon, roots: Path, context: Context
) -> None:
    """At no level: neither by g++ and as behind a fork, nor by nvcc's own steps, nor by nvcc
    itself.
    """
    before = sandboxed.cuda()["not_faster"]
    answer = Connection(sandboxed, context).build(unit(5, read.format(roots.parent / "secret.h")))
    assert isinstance(answer, Failed), answer
    assert "the secret was read" not in answer.message
    assert "Permission denied" in answer.message or "file not found" in answer.message
    after = sandboxed.cuda()["not_faster"]
    reason = (
        "headers of its own are not looked into" if "#include" in read else "warm: the assembler"
    )
    assert after[reason] == before.get(reason, 0) + 1
