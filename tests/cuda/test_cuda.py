"""CUDA units through a real daemon and a real nvcc: levels, errors, faults; warm state changes only
the time.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import Counter
from pathlib import Path

import psutil
import pytest

import warmcc
from tests.support.cuda import (
    DECLARATION,
    TOY,
    CudaDaemon,
    build,
    compared,
    levels,
    new_number,
    new_toy,
    refuses_a_cpu_tensor,
)
from warmcc.errors import CompileError


@pytest.mark.ci
def test_a_new_kernel_is_built_lean_and_found_again(client: CudaDaemon) -> None:
    before, source = levels(client), new_toy()
    assert refuses_a_cpu_tensor(build("toy", source))
    assert levels(client, before) == {"lean": 1}
    hits = client.status()["requests"]["hits"]
    assert refuses_a_cpu_tensor(build("toy", source))
    assert client.status()["requests"]["hits"] == hits + 1


def test_leaderboard_style_includes(client: CudaDaemon) -> None:
    before = levels(client)
    includes = (
        "#include <torch/extension.h>\n#include <c10/cuda/CUDAGuard.h>\n"
        "#include <cuda_fp16.h>\n#include <vector>\n"
    )
    assert refuses_a_cpu_tensor(build("headers", includes + new_toy()))
    assert levels(client, before) == {"lean": 1}


@pytest.mark.ci
@pytest.mark.parametrize(
    ("old", "new", "line", "text"),
    [
        ("y[i] = x[i]", "y[i] = undefined_name", 4, 'identifier "undefined_name" is undefined'),
        ("auto y = torch::empty_like(x);", "auto y = torch::empty_like(x)", 9, 'expected a ";"'),
        (
            "auto y = torch::empty_like(x);",
            "int y = torch::empty_like(x);",
            8,
            "no suitable conversion",
        ),
        (
            "int i =",
            "__shared__ float much[100000]; much[threadIdx.x] = x[0]; __syncthreads(); "
            "y[1] = much[n]; int i =",
            0,
            "uses too much shared data",
        ),
    ],
)
def test_errors_are_nvccs_own_in_the_users_lines(
    client: CudaDaemon, old: str, new: str, line: int, text: str
) -> None:
    source = new_toy()
    assert old in source
    for _ in range(2):  # the second time too
        with pytest.raises(CompileError, match="Error building extension 'wrong'") as caught:
            build("wrong", source.replace(old, new))
        assert text in str(caught.value)
        errors = [one for one in caught.value.diagnostics if "error" in one.severity]
        assert any(text in one.message for one in errors)
        if line:
            assert ("cuda_sources[0]", line) in {(one.file, one.line) for one in errors}


def test_an_error_in_the_declaration_is_the_cpp_sources(client: CudaDaemon) -> None:
    with pytest.raises(CompileError) as caught:
        warmcc.load_inline(
            "declared",
            "torch::Tensr run(torch::Tensor x);",
            cuda_sources=new_toy(),
            functions=["run"],
        )
    assert any(one.file == "cpp_sources[0]" for one in caught.value.diagnostics)


CONDITIONAL = '#ifdef TORCH_API\n#define HAS_TORCH 1\n#endif\nstatic_assert(HAS_TORCH, "");\n'


def wait_for_warm_level(client: CudaDaemon) -> None:
    """Until units that begin with stock's implicit headers have a warm level."""
    deadline = time.monotonic() + 200
    while not any(
        f["name"] == "warm" for p in client.cuda()["profiles"] if p["torch"] for f in p["levels"]
    ):
        assert time.monotonic() < deadline, client.log()
        time.sleep(0.2)


def test_what_the_lean_prelude_cannot_tell_goes_to_the_warm_level(client: CudaDaemon) -> None:
    before = levels(client)
    assert refuses_a_cpu_tensor(build("conditional", CONDITIONAL + new_toy()))
    assert set(levels(client, before)) <= {"exact", "warm"}
    wait_for_warm_level(client)
    before, samples = levels(client), compared(client)
    assert refuses_a_cpu_tensor(build("conditional", CONDITIONAL + new_toy()))
    assert levels(client, before) == {"warm": 1}
    assert compared(client, after=samples) == {"CUDA same": samples.get("CUDA same", 0) + 1}
    before = levels(client)
    with pytest.raises(CompileError, match="error") as caught:
        build("conditional", CONDITIONAL + new_toy().replace("auto y", "int y"))
    assert levels(client, before) == {}  # nvcc itself is not asked
    assert any("no suitable conversion" in one.message for one in caught.value.diagnostics)


def test_units_without_torch_have_a_prelude_of_their_own(client: CudaDaemon) -> None:
    kernel = """
        #include <cuda_runtime.h>
        __global__ void fill(int* p) { p[threadIdx.x] = NUMBER; }
        extern "C" int launch(int* p) { fill<<<1, 32>>>(p); return NUMBER; }
    """
    bind = (
        '#include <torch/extension.h>\nextern "C" int launch(int*);\n'
        "int run() { return launch(nullptr); }"
    )
    for _ in range(2):
        number = new_number()
        before, samples = levels(client), compared(client)
        module = warmcc.load_inline(
            "free", bind, cuda_sources=kernel.replace("NUMBER", str(number)), functions=["run"],
            no_implicit_headers=True,
        )  # fmt: skip
        assert module.run() == number
        made = levels(client, before)
        client.wait_for_cuda()
    assert made == {"warm": 1}
    assert compared(client, after=samples) == {"CUDA same": samples.get("CUDA same", 0) + 1}
    before = levels(client)
    with pytest.raises(
        CompileError, match=r"at::Tensor|torch|namespace"
    ):  # the prelude has no torch
        warmcc.load_inline(
            "free",
            bind,
            cuda_sources=kernel + "at::Tensor f();",
            functions=["run"],
            no_implicit_headers=True,
        )
    assert levels(client, before) == {}


def test_steps_are_found_by_what_they_read(
    client: CudaDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found() -> dict[str, int]:
        steps: dict[str, int] = client.cuda()["steps_found"]
        return steps

    kernel = new_toy()
    build("host_edited", kernel)
    before = found()
    build("host_edited", kernel.replace("255", "127 + 128"))
    assert found().get("ptxas", 0) == before.get("ptxas", 0) + 1
    free = f"#include <cuda_runtime.h>\n__global__ void f(int* p) {{ *p = {new_number()}; }}\n"
    for architectures, known in (("8.0;9.0", 0), ("8.0;8.6;9.0", 2)):
        monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", architectures)
        for text in (
            f"#include <cuda_runtime.h>\n__global__ void g{known}() {{}}\n",
            free,
        ):  # the first makes it warm
            before = found()
            warmcc.load_inline(
                "wide", "", cuda_sources=text, no_implicit_headers=True, is_python_module=False
            )
            client.wait_for_cuda()
    assert found().get("cicc", 0) == before.get("cicc", 0) + 2


def test_declarations_are_compiled_once_for_all_names(client: CudaDaemon) -> None:
    """Each module has its own name and entry point; what declares its functions is shared, unless
    it asks.
    """

    def compiled(name: str, declaration: str) -> int:
        before = client.status()["compiles"]
        module = warmcc.load_inline(name, declaration, cuda_sources=new_toy(), functions=["run"])
        assert module.__name__ == name and refuses_a_cpu_tensor(module)
        return int(client.status()["compiles"] - before)

    shared = f"{DECLARATION}  // {new_number()}"
    asking = (
        f"{shared}\nextern const char* called;\n"
        f"const char* called = C10_STRINGIZE(TORCH_EXTENSION_NAME);"
    )
    compiled("declared_a", shared)
    assert compiled("declared_b", shared) == 2  # the kernel, and the entry point
    compiled("asking_a", asking)
    assert compiled("asking_b", asking) == 2  # the kernel, and all of the declarations


def test_front_ends_wait_for_the_next_unit(client: CudaDaemon) -> None:
    def crowds() -> dict[str, int]:
        """How many processes there are of each front end's name that a server with forks without a
        unit has.
        """
        found: Counter[tuple[str, str]] = Counter()
        for process in client.processes():
            with contextlib.suppress(psutil.Error):
                if process.name() in ("cudafe++", "cicc") and (
                    address := process.environ().get("WARMCC_SOCKET")
                ):
                    found[process.name(), address] += 1
        return {name: count for (name, _), count in found.items() if count > 1}

    def settle() -> None:
        """Wait until the lean level alone has forks without a unit, two for each front end: one
        waits for the other.
        """
        deadline = time.monotonic() + 60
        while True:
            ahead = [
                x["name"]
                for profile in client.cuda()["profiles"]
                for x in profile["levels"]
                if x["ahead"]
            ]
            found = crowds()
            if ahead == ["lean"] and found == {"cudafe++": 3, "cicc": 3}:
                return
            assert time.monotonic() < deadline, (ahead, found, client.log()[-4000:])
            time.sleep(0.2)

    client.wait_for_cuda()
    for _ in range(2):
        before = levels(client)
        assert refuses_a_cpu_tensor(build("waited_for", new_toy()))
        assert levels(client, before) == {"lean": 1}
        settle()


@pytest.mark.ci
def test_flags_of_a_debugger_are_compiled_exactly(client: CudaDaemon) -> None:
    before = levels(client)
    assert refuses_a_cpu_tensor(build("debug", new_toy(), extra_cuda_cflags=["-g"]))
    assert levels(client, before) == {"exact": 1}
    assert any("-g describes" in reason for reason in client.cuda()["not_faster"])


def test_killed_fork_servers_cost_only_time(client: CudaDaemon) -> None:
    """One at a time: the build after it is right, and soon there is a new server."""
    for kind in ("cudafe++", "cicc", "cc1plus"):
        client.wait_for_cuda()
        servers = []
        for process in client.processes():
            with contextlib.suppress(psutil.Error):
                named = kind in " ".join(process.cmdline()[:1]) and "user" not in process.name()
                if named and "WARMCC_SOCKET" in process.environ():
                    servers.append(process)
        assert servers
        os.kill(min(servers, key=lambda process: process.create_time()).pid, signal.SIGKILL)
        assert refuses_a_cpu_tensor(build(f"killed_{kind[:4]}", new_toy()))
        deadline = time.monotonic() + 120
        while levels(client, (before := levels(client))) == {} and time.monotonic() < deadline:
            client.wait_for_cuda()
            assert refuses_a_cpu_tensor(build("again", new_toy()))
            if levels(client, before).get("lean"):
                break
        assert psutil.pid_exists(client.pid)
    assert client.cuda()["dropped"].get("a fork server died")


def test_a_live_kernel_follows_its_file(client: CudaDaemon, tmp_path: Path) -> None:
    """Its functions are declared for the binding by their own heads."""
    path = tmp_path / "kernel.cu"
    number = new_number()
    text = TOY + "int number() { return FACTOR; }\n"
    path.write_text(text.replace("FACTOR", str(number)))
    with warmcc.watch("live", path, ["run", "number"]) as ext:
        assert refuses_a_cpu_tensor(ext) and ext.number() == number
        before = levels(client)
        path.write_text(text.replace("FACTOR", str(number + 1)))
        assert ext.wait(120) and ext.number() == number + 1
        assert levels(client, before) == {"lean": 1}
        path.write_text(text.replace("FACTOR", "nothing"))
        assert ext.wait(120) and isinstance(ext.error, CompileError)
        places = {(one.file, one.line) for one in ext.error.diagnostics if one.severity == "error"}
        assert (str(path), 4) in places
        assert ext.number() == number + 1
