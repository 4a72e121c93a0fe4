"""Warm state changes only the time: PTX, symbols and machine code are nvcc's."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.support import device_code
from tests.support.cuda import (
    UNITS,
    CudaDaemon,
    build,
    compared,
    levels,
    new_number,
    new_toy,
    refuses_a_cpu_tensor,
)

# At the time of writing two of the corpus need nvcc itself: autograd's classes and operator
# registration in the .cu.
MOST_FALLEN = 0.10


def test_an_edit_of_a_kernels_body_compiles_no_host_code(client: CudaDaemon) -> None:
    def found() -> int:
        return int(client.cuda()["steps_found"].get("the host's compiler", 0))

    kernel = new_toy()
    edited = kernel.replace("y[i] = x[i]", "y[i] = x[i] + x[i]")
    before = build("body_edited", kernel)
    hosts, samples = found(), compared(client)
    after = build("body_edited", edited)
    assert found() == hosts + 1
    assert refuses_a_cpu_tensor(after)
    ours = device_code.extract(Path(after.__file__))
    assert device_code.differing(ours, device_code.extract(Path(before.__file__))) == [
        "machine code"
    ]
    alone = device_code.extract(
        Path(build("body_alone", edited).__file__)
    )  # another name, so all of it is made
    assert found() == hosts + 1
    assert device_code.differing(ours, alone) == []
    assert compared(client, after=samples).get("CUDA different", 0) == 0


@pytest.mark.timeout(1800)
def test_what_a_wrong_prelude_made_is_found_and_withdrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = CudaDaemon(prewarm_cuda=True, sample_after=0.5)
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    source = new_toy().replace("x[i]", "expf(x[i])")
    try:
        daemon.start()
        daemon.wait_for_cuda()
        daemon.stop()
        (header,) = daemon.cache_dir.glob("cuda/overlays/*/torch/types.h")
        header.write_text(header.read_text() + "#define expf(x) (x)\n")
        daemon.start()
        daemon.wait_for_cuda()
        build("tampered", source)
        assert levels(daemon) == {"lean": 1}
        assert compared(daemon, after={}) == {"CUDA different": 1}
        deadline = time.monotonic() + 10
        while (
            not (withdrawn := daemon.status()["accelerators"]["withdrawn"])
            and time.monotonic() < deadline
        ):
            time.sleep(0.1)
        assert ["ptx" in reason for reason in withdrawn.values()] == [True]
        daemon.stop()
        daemon.start()  # a later one does not trust it either
        assert daemon.status()["accelerators"]["withdrawn"] == withdrawn
        daemon.wait_for_cuda()
        before = levels(daemon)
        assert refuses_a_cpu_tensor(build("tampered", source))
        assert levels(daemon, before) in ({"exact": 1}, {"warm": 1})
        assert daemon.status()["requests"]["hits"] == 0
    finally:
        daemon.stop()
        daemon.discard()


def test_without_warm_state_the_same_comes_out(client: CudaDaemon) -> None:
    cold = CudaDaemon(cuda_warm=False)
    source = new_toy()
    warm = build("same", source)
    try:
        cold.start()
        with pytest.MonkeyPatch.context() as patch:
            for name, value in cold.environment.items():
                patch.setenv(name, value)
            plain = build("same_cold", source)
        assert levels(cold) == {"exact": 1}
        assert refuses_a_cpu_tensor(warm) and refuses_a_cpu_tensor(plain)
    finally:
        cold.stop()
        cold.discard()


@pytest.mark.timeout(5400)
def test_the_corpus_is_built_nearly_all_lean(client: CudaDaemon) -> None:
    fallen = []
    for path in UNITS:
        before = levels(client)
        module = build(f"corpus_{path.stem}", path.read_text())
        assert callable(module.run)
        made = levels(client, before)
        if "lean" not in made:  # the first that begins with a library's headers makes them warm
            client.wait_for_cuda()
            before = levels(client)
            build(f"corpus_{path.stem}", path.read_text() + "// again\n")
            made = levels(client, before)
        if "lean" not in made:
            fallen.append(path.stem)
    print(f"{len(fallen)} of {len(UNITS)} units need nvcc itself: {', '.join(fallen)}")
    assert len(UNITS) >= 40
    assert len(fallen) <= MOST_FALLEN * len(UNITS), fallen


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "name",
    [
        *("static_helpers", "softmax", "constant_memory", "matmul_wmma", "std_containers"),
        "checked_arguments",
    ],
)
def test_ptx_and_symbols_are_nvccs(client: CudaDaemon, name: str) -> None:
    """The idle daemon has nvcc build the unit again, and compares."""
    source = next(path for path in UNITS if path.stem == name).read_text()
    for _ in range(2):  # the first makes it warm, if it is not
        before, samples = levels(client), compared(client)
        build(f"sampled_{name}", f"{source}// {new_number()}\n")
        if "lean" in levels(client, before):
            break
        client.wait_for_cuda()
    now = compared(client, after=samples)
    assert now == {"CUDA same": samples.get("CUDA same", 0) + 1}, client.status()["accelerators"][
        "withdrawn"
    ]
