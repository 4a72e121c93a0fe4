"""Flags that nobody has used before: a unit waits a few seconds for fork servers where the host's
prelude is there, and longer where that is still quicker than to do without it. How it is on many
processors is in ``test_device_half.py``.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import psutil
import pytest
import torch

import warmcc
from tests.support import device_code
from tests.support.cuda import (
    DECLARATION,
    WHOLE,
    CudaDaemon,
    build,
    compared,
    levels,
    new_number,
    new_toy,
    refuses_a_cpu_tensor,
)
from warmcc.daemon.cuda.warm.host_text import STEP as KEPT_TEXT
from warmcc.daemon.cuda.warm.profiles import RESTED

# nvcc gives them to cicc and ptxas alone, and no other test has them.
DEVICES_ALONE = ["--maxrregcount=57", "--use_fast_math"]
INLINED = """
namespace { __device__ __forceinline__ float twice(float x) { return x + x; } }
__global__ void inlined(float* x) { x[threadIdx.x] = twice(x[threadIdx.x]); }
"""  # of which ``-lineinfo`` keeps the name, with its module's in it


@pytest.fixture
def client(warm_cuda: CudaDaemon, monkeypatch: pytest.MonkeyPatch) -> CudaDaemon:
    for name, value in warm_cuda.environment.items():
        monkeypatch.setenv(name, value)
    warm_cuda.wait_for_cuda()
    return warm_cuda


def wanted(daemon: CudaDaemon) -> int:
    """How many profiles there are."""
    return len(daemon.cuda()["profiles"])


@pytest.mark.ci
@pytest.mark.parametrize("flags", [DEVICES_ALONE, ["-lineinfo"]])
def test_flags_for_the_devices_alone(client: CudaDaemon, flags: list[str]) -> None:
    before, samples, profiles = levels(client), compared(client), wanted(client)
    module = build("devices_alone", INLINED + new_toy(), extra_cuda_cflags=flags)
    assert refuses_a_cpu_tensor(module)
    assert levels(client, before) == {"lean": 1}
    assert wanted(client) == profiles + 1
    now = compared(client, after=samples)
    assert now == {"CUDA same": samples.get("CUDA same", 0) + 1}, (
        "it is what nvcc makes with these flags"
    )


def fork_servers(daemon: CudaDaemon) -> dict[str, str]:
    """The programs that run as such, by their sockets."""
    found = {}
    for process in daemon.processes():
        with contextlib.suppress(psutil.Error):
            if address := process.environ().get("WARMCC_SOCKET"):
                found[address] = process.name()
    return found


@pytest.mark.timeout(1200)
def test_flags_that_no_front_end_sees_need_no_fork_servers(client: CudaDaemon) -> None:
    """And two sets of flags that differ for cicc alone have one cudafe++."""
    before, servers, samples = levels(client), fork_servers(client), compared(client)
    flags = ["-Xptxas", "-O2"]
    assert refuses_a_cpu_tensor(build("no_front_end", new_toy(), extra_cuda_cflags=flags))
    assert set(fork_servers(client)) == set(servers)
    same = compared(client, after=samples)
    assert same == {"CUDA same": samples.get("CUDA same", 0) + 1}
    assert refuses_a_cpu_tensor(build("cicc", new_toy(), extra_cuda_cflags=["-ftz=true"]))
    more = sorted(name for address, name in fork_servers(client).items() if address not in servers)
    assert more == ["cicc"] and levels(client, before) == {"lean": 2}
    now = compared(client, after=same)
    assert now == {"CUDA same": same["CUDA same"] + 1}


def package(folder: Path, names: list[str]) -> list[str]:
    """Sources with a function for each name, and one that binds the first of them as ``run``."""
    for name in names:
        text = new_toy().replace("run(", f"{name}(").replace("scale", f"{name}_scale")
        (folder / f"{name}.cu").write_text(f"#include <torch/extension.h>\n{text}")
    declared = "".join(DECLARATION.replace("run", name) for name in names)
    bound = "".join(f'm.def("{"run" if name == names[0] else name}", &{name}); ' for name in names)
    (folder / "binding.cpp").write_text(
        f"#include <torch/extension.h>\n{declared}"
        f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ {bound}}}\n"
    )
    return [str(folder / f"{name}.cu") for name in names] + [str(folder / "binding.cpp")]


@pytest.mark.ci
def test_packed_code_names_its_source(client: CudaDaemon, tmp_path: Path) -> None:
    before, sources = levels(client), package(tmp_path, ["named"])
    module = warmcc.load("names_its_source", sources, extra_cuda_cflags=["-lineinfo"])
    assert levels(client, before) == {"lean": 1}
    assert f"identifier = {sources[0]}\n" in device_code.extract(Path(module.__file__))["PTX"]


def test_units_of_one_request_wait_for_the_same(client: CudaDaemon, tmp_path: Path) -> None:
    before, profiles = levels(client), wanted(client)
    sources = package(tmp_path, ["one", "two"])
    module = warmcc.load("at_once", sources, extra_cuda_cflags=["--maxrregcount=58"])
    assert refuses_a_cpu_tensor(module)
    assert levels(client, before) == {"lean": 2}
    assert wanted(client) == profiles + 1


@pytest.mark.ci
def test_a_unit_waits_for_the_hosts_prelude(client: CudaDaemon) -> None:
    """What cudafe++ makes of the headers is kept by what the preprocessor makes of them, and these
    flags change nothing there."""
    before, samples = levels(client), compared(client)
    kept = client.cuda()["steps_found"].get(KEPT_TEXT, 0)
    flags = ["-Xcompiler", "-fno-tree-slsr"]
    assert refuses_a_cpu_tensor(build("not_there", WHOLE + new_toy(), extra_cuda_cflags=flags))
    assert levels(client, before) == {"lean": 1}
    assert client.cuda()["steps_found"][KEPT_TEXT] == kept + 1
    now = compared(client, after=samples)
    assert now == {"CUDA same": samples.get("CUDA same", 0) + 1}, (
        "it is what nvcc makes with these flags"
    )


def test_a_unit_with_few_headers_does_not_wait(client: CudaDaemon) -> None:
    """nvcc takes less time than the prelude."""
    before, samples = levels(client), compared(client)
    flags = ["-Xcompiler", "-fno-tree-pre"]
    assert refuses_a_cpu_tensor(build("light", new_toy(), extra_cuda_cflags=flags))
    assert levels(client, before) == {"half": 1}
    now = compared(client, after=samples)
    assert now == {**samples, "CUDA same": samples.get("CUDA same", 0) + 1}


def test_many_units_wait_for_the_hosts_prelude(client: CudaDaemon, tmp_path: Path) -> None:
    before = levels(client)
    names = [f"many_{number}" for number in range(5)]
    flags = ["-O1", "-DNDEBUG"]
    module = warmcc.load("many", package(tmp_path, names), extra_cuda_cflags=flags)
    assert refuses_a_cpu_tensor(module)
    assert levels(client, before) == {"lean": len(names)}


def test_what_cannot_be_lean_does_not_wait(client: CudaDaemon) -> None:
    before = levels(client)
    source = "#ifdef TORCH_API\n#define IT 1\n#endif\n" + new_toy()
    assert refuses_a_cpu_tensor(build("cannot", source, extra_cuda_cflags=["--maxrregcount=59"]))
    assert levels(client, before) == {"exact": 1}


def preludes(daemon: CudaDaemon) -> dict[Path, int]:
    """The host's preludes that are kept, with the times when they were made."""
    found = daemon.cache_dir.glob("cuda/host/*/profile")
    return {path.parent: (path.parent / "prelude.h.gch").stat().st_mtime_ns for path in found}


@pytest.mark.timeout(1800)
def test_preludes_of_common_flags_are_made_when_the_daemon_is_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    daemon = CudaDaemon(prewarm_cuda=True, prewarm_idle=["-O1"])
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    try:
        daemon.start()
        daemon.wait_for_cuda()
        deadline = time.monotonic() + 900
        while len(preludes(daemon)) < 4:  # with torch, without, for cuda_runtime.h, and that one
            assert time.monotonic() < deadline, daemon.log()
            time.sleep(1)
        before = levels(daemon)
        flags = ["-O1", "--use_fast_math"]
        assert refuses_a_cpu_tensor(build("idle", new_toy(), extra_cuda_cflags=flags))
        assert levels(daemon, before) == {"lean": 1}
        kept = preludes(daemon)
        daemon.stop()
        daemon.start()  # what it warms up is on its way, and a unit waits for that
        assert refuses_a_cpu_tensor(build("restarted", new_toy()))
        assert levels(daemon) == {"lean": 1}
        daemon.wait_for_cuda()
        assert preludes(daemon) == kept, "the next daemon has found them"
        daemon.stop()
    finally:
        daemon.discard()


COPIED = ("cuda_fp16.h", "cuda_fp16.hpp", "cuda_runtime.h", "vector_types.h")
OF_COPY = """
bool is_changed() {
#ifdef OF_THE_COPY
  return true;
#else
  return false;
#endif
}
"""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("way", ["-I", "CPATH"])
def test_copies_of_the_toolkits_headers_need_no_other_prelude(
    client: CudaDaemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """As packages from PyPI bring them; what a copy says from then on counts."""
    theirs = Path(client.environment["CUDA_HOME"], "include")
    for name in COPIED:
        (tmp_path / name).write_bytes((theirs / name).read_bytes())
    (tmp_path / "of_copies.h").write_text("#include <cuda_fp16.h>\n")
    more = {"extra_include_paths": [str(tmp_path)]} if way == "-I" else {}
    if way == "CPATH":
        monkeypatch.setenv("CPATH", str(tmp_path))
    source = f"{WHOLE}#include <of_copies.h>\n{new_toy()}{OF_COPY}"

    def is_changed() -> bool:
        module = warmcc.load_inline(
            "copies", f"{DECLARATION} bool is_changed();", cuda_sources=source,
            functions=["run", "is_changed"], **more,
        )  # fmt: skip
        assert refuses_a_cpu_tensor(module)
        return bool(module.is_changed())

    before, samples, kept = levels(client), compared(client), preludes(client)
    assert not is_changed()
    assert levels(client, before) == {"lean": 1}
    assert preludes(client) == kept
    now = compared(client, after=samples)
    assert now == {**samples, "CUDA same": samples.get("CUDA same", 0) + 1}
    with (tmp_path / "cuda_fp16.h").open("a") as copy:
        copy.write("#define OF_THE_COPY\n")
    assert is_changed()


def test_an_assertion_names_the_callers_copy_of_a_header(
    client: CudaDaemon, tmp_path: Path
) -> None:
    """The prelude would name the toolkit's."""
    theirs = Path(client.environment["CUDA_HOME"], "include")
    for path in theirs.glob("cuda_fp*"):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    rounds = "int six() { return __nv_cvt_double_to_fp6(1.5, __NV_E2M3, cudaRoundZero); }"
    source = f"{WHOLE}#include <cuda_fp6.h>\n{new_toy()}{rounds}\n"
    before = levels(client)
    module = warmcc.load_inline(
        "asserts", f"{DECLARATION} int six();", cuda_sources=source, functions=["run", "six"],
        extra_include_paths=[str(tmp_path)],
    )  # fmt: skip
    assert module.six() > 0
    made = Path(module.__file__).read_bytes()
    assert str(tmp_path / "cuda_fp6.hpp").encode() in made
    assert str(theirs / "cuda_fp6.hpp").encode() not in made
    assert levels(client, before) == {"exact": 1}


def test_macros_that_no_header_mentions_are_no_other_flags(client: CudaDaemon) -> None:
    before, samples, profiles = levels(client), compared(client), wanted(client)
    source = new_toy().replace("x[i]", "x[i] + FIRST_SIGHT_N + WITHOUT_VALUE")
    flags = ["-DFIRST_SIGHT_N=64", "-DWITHOUT_VALUE"]
    assert refuses_a_cpu_tensor(build("macros", source, extra_cuda_cflags=flags))
    assert levels(client, before) == {"lean": 1}
    assert wanted(client) == profiles, "the default flags' profile serves them"
    now = compared(client, after=samples)
    assert now == {"CUDA same": samples.get("CUDA same", 0) + 1}, (
        "it is what nvcc makes with these flags"
    )


def test_macros_that_headers_mention_are_other_flags(client: CudaDaemon) -> None:
    before = levels(client)
    flags = ["-DSTRIP_ERROR_MESSAGES"]
    module = build("mentions", WHOLE + new_toy(), extra_cuda_cflags=flags)
    with pytest.raises(RuntimeError, match="CHECK FAILED"):
        module.run(torch.ones(4))
    assert levels(client, before) == {"lean": 1}
    assert any("-DSTRIP_ERROR_MESSAGES" in one["flags"] for one in client.cuda()["profiles"])


def test_a_macro_that_headers_may_mention_is_a_flag_from_the_start(
    nvcc: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is made for flags without it, which would serve nobody, where nothing is known of the
    headers that are read."""
    daemon = CudaDaemon()
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    try:
        daemon.start()
        flags = ["-DNDEBUG", "-DFIRST_SIGHT_M=3"]
        source = WHOLE + new_toy().replace("x[i]", "x[i] + FIRST_SIGHT_M")
        assert refuses_a_cpu_tensor(build("assumed", source, extra_cuda_cflags=flags))
        # half: on many processors the devices' servers are there before the host's
        assert levels(daemon) in ({"lean": 1}, {"half": 1})
        (profile,) = daemon.cuda()["profiles"]
        assert [flag for flag in flags if flag in profile["flags"]] == ["-DNDEBUG"]
        daemon.stop()
    finally:
        daemon.discard()


@pytest.mark.ci
def test_an_idle_daemon_gives_memory_back(nvcc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = CudaDaemon(rest_after=1.0)
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    try:
        daemon.start()
        for part in ("before", "after"):
            before = levels(daemon)
            for turn in ("asks", "finds"):
                number = new_number()
                name = f"{turn}_{part}"
                kernel = f'extern "C" __global__ void {name}(int* y) {{ *y = {number}; }}'
                warmcc.load_inline(
                    name, "", cuda_sources=kernel, no_implicit_headers=True,
                    is_python_module=False,
                )  # fmt: skip
                daemon.wait_for_cuda()
            assert levels(daemon, before).get("warm") == 1
            deadline = time.monotonic() + 60
            while daemon.cuda()["profiles"] and time.monotonic() < deadline:
                time.sleep(12.0)  # who asks is a client
            assert daemon.cuda()["dropped"] == {RESTED: 1 if part == "before" else 2}
        daemon.stop()
    finally:
        daemon.discard()
