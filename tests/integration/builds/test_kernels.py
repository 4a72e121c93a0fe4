"""Kernels and C functions through a real daemon: kept by content, and never a wrong one."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

import warmcc
from tests.support.cuda import HOME, why_not
from tests.support.daemons import Daemon
from warmcc import nvrtc, protocol
from warmcc.client import notices
from warmcc.client.connection import session
from warmcc.client.kernel.compiling import Compiled
from warmcc.errors import CompileError, DaemonUnavailable, WarmccWarning

LIBRARY = nvrtc.library(os.path.dirname(torch.__file__), dict(os.environ))
needs_nvrtc = pytest.mark.skipif(LIBRARY is None, reason="needs libnvrtc")
ADD = """
template <typename T> __global__ void add(const T* x, T* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = x[i] + T(BY);
}
"""


def write(path: Path, text: str) -> None:
    """A file that is older than what is compiled next: one that is not makes a result that is not
    kept."""
    path.write_text(text)
    time.sleep(0.05)


def outcome(source: str, name: str, arch: str = "sm_90", **more: Any) -> str:
    return warmcc.kernel(source, name, **more).compile(arch).outcome


@needs_nvrtc
def test_each_part_of_a_request_counts(served: Daemon, tmp_path: Path) -> None:
    more = {"constants": {"BY": 41}}
    first = warmcc.kernel(ADD, "add<float>", **more).compile("sm_90")
    assert first.outcome == "miss" and first.names == {"add<float>": "_Z3addIfEvPKT_PS0_i"}
    assert Path(first.path).read_bytes() == first.image and first.image[:4] == b"\x7fELF"
    assert outcome(ADD, "add<float>", **more) == "hit"
    assert outcome(ADD, "add<double>", **more) == "miss"
    assert outcome(ADD, "add<float>", "sm_80", **more) == "miss"
    assert outcome(ADD, "add<float>", constants={"BY": 42}) == "miss"
    assert outcome(ADD, "add<float>", options=["--use_fast_math"], **more) == "miss"
    assert outcome(ADD + "\n", "add<float>", **more) == "miss"
    ptx = warmcc.kernel(ADD, "add<float>", **more).compile("compute_90")
    assert ptx.outcome == "miss" and b".entry _Z3addIfEvPKT_PS0_i" in ptx.image


HIT = """
import sys, torch
had = set(sys.modules)
import warmcc
found = warmcc.kernel(sys.argv[1], constants={"BY": 1}, name="add<float>").compile("sm_90")
print(found.outcome, *sorted(set(sys.modules) - had))
"""


@needs_nvrtc
def test_a_hit_in_a_new_process_imports_little(served: Daemon) -> None:
    command = [sys.executable, "-c", HIT, ADD]

    def imported() -> list[str]:
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.split()

    assert imported()[0] == "miss"
    outcome, *names = imported()
    assert outcome == "hit" and "warmcc.client.kernel.loaded" in names
    needless = ("zmq", "rich", "subprocess", "warmcc.client.connection.remembering")
    assert [one for one in needless if one in names] == []


@needs_nvrtc
def test_headers_are_followed(served: Daemon, tmp_path: Path) -> None:
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    write(tmp_path / "far/by.h", "#define BY 7\n")
    source = f'#include "by.h"\n{ADD}// {tmp_path}\n'
    more: dict[str, Any] = {"include_dirs": [tmp_path / "near", tmp_path / "far"]}
    assert [outcome(source, "add<float>", **more) for _ in range(2)] == ["miss", "hit"]
    write(tmp_path / "far/by.h", "#define BY 8\n")
    changed = warmcc.kernel(source, "add<float>", **more).compile("sm_90")
    assert changed.outcome == "miss"
    write(tmp_path / "far/by.h", "#define BY 7\n")
    assert outcome(source, "add<float>", **more) == "hit"  # it is as it was
    write(tmp_path / "near/by.h", "#define BY 9\n")  # found first
    shadowed = warmcc.kernel(source, "add<float>", **more).compile("sm_90")
    assert shadowed.outcome == "miss" and shadowed.image != changed.image
    (tmp_path / "near/by.h").unlink()
    assert outcome(source, "add<float>", **more) == "hit"


@needs_nvrtc
def test_what_a_macro_includes_is_not_kept(served: Daemon, tmp_path: Path) -> None:
    (tmp_path / "by.h").write_text("#define BY 7\n")
    source = f'#define WHAT "by.h"\n#include WHAT\n{ADD}// {tmp_path}\n'
    more = {"include_dirs": [tmp_path]}
    assert [outcome(source, "add<float>", **more) for _ in range(2)] == ["miss", "miss"]


@needs_nvrtc
def test_a_mistake_names_its_line_each_time(served: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "wrong.cu"
    path.write_text(f"{ADD}\n__global__ void bad(int* x) {{ *x = nothing; }}\n")
    for source, file in ((path, str(path)), (path.read_text(), "kernel.cu")):
        with pytest.raises(CompileError) as caught:
            warmcc.kernel(source, "bad", constants={"BY": 1}).compile("sm_90")
        (found,) = caught.value.diagnostics
        assert (found.file, found.line) == (file, 7) and "nothing" in found.message
    with pytest.raises(CompileError, match="invalid value for --gpu-arch"):
        warmcc.kernel(ADD, "add<float>", constants={"BY": 1}).compile("sm_12")  # no GPU has it


@needs_nvrtc
def test_equal_requests_share_one_compile(served: Daemon) -> None:
    source = f"{ADD}// shared {time.time()}\n"

    def compile_(_: int) -> str:
        try:
            return outcome(source, "add<float>", constants={"BY": 3})
        finally:
            session.forget()

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(compile_, range(6)))
    assert found.count("miss") == 1 and set(found) <= {"miss", "joined", "hit"}


def _worker(daemon: Daemon) -> psutil.Process:
    children = psutil.Process(daemon.pid).children()
    (found,) = [one for one in children if "worker_main.py" in str(one.cmdline())]
    return found


@needs_nvrtc
def test_a_worker_that_is_killed_is_replaced(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = fresh_daemon()
    for name, value in one.environment.items():
        monkeypatch.setenv(name, value)
    assert outcome(ADD, "add<float>", constants={"BY": 1}) == "miss"
    _worker(one).kill()
    assert outcome(ADD, "add<float>", constants={"BY": 2}) == "miss"
    session.forget()
    one.stop()  # which fails if a process is left


_SLOW = """
template <int N, int M> struct F { static constexpr int v = F<N - 1, 2 * M>::v + F<N - 1, 2 * M + 1>::v; };
template <int M> struct F<0, M> { static constexpr int v = M; };
__global__ void slow(int* out) { *out = F<22, 1>::v; }
"""  # noqa: E501


@needs_nvrtc
def test_a_job_that_nobody_waits_for_ends(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = fresh_daemon()
    for name, value in one.environment.items():
        monkeypatch.setenv(name, value)
    assert outcome(ADD, "add<float>", constants={"BY": 1}) == "miss"
    worker = _worker(one)

    def ask() -> None:
        with contextlib.suppress(Exception):
            request = warmcc.kernel(_SLOW, "slow")._request("sm_90")
            monkeypatch.setenv("WARMCC_TIMEOUT", "30")
            connection = session.Session(autostart=False)
            connection._send(protocol.Kernel(1, request))
            deadline = time.monotonic() + 20
            while not worker.children() and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.5)
            started.extend(worker.children())
            connection.close()

    started: list[psutil.Process] = []
    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    assert started, "the compile did not begin"
    _, alive = psutil.wait_procs(started, timeout=10)
    assert alive == []
    assert outcome(ADD, "add<float>", constants={"BY": 1}) == "hit"
    session.forget()


@needs_nvrtc
def test_without_a_daemon_this_process_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("WARMCC_AUTOSTART", "0")
    monkeypatch.delenv("WARMCC_FALLBACK", raising=False)
    monkeypatch.setattr(notices, "_given", set())
    session.forget()
    with pytest.warns(WarmccWarning, match="This process compiles the kernel itself"):
        assert outcome(ADD, "add<float>", constants={"BY": 1}) == "local"
    monkeypatch.setenv("WARMCC_FALLBACK", "0")
    with pytest.raises(DaemonUnavailable):
        outcome(ADD, "add<float>", constants={"BY": 2})
    monkeypatch.setenv("WARMCC_DISABLE", "1")
    assert outcome(ADD, "add<float>", constants={"BY": 1}) == "local"
    with pytest.raises(CompileError) as caught:
        warmcc.kernel(ADD, "add<float>").compile("sm_90")
    assert [(one.file, one.line) for one in caught.value.diagnostics] == [("kernel.cu", 4)]


@needs_nvrtc
@pytest.mark.slow
def test_a_sandboxed_daemon_leaves_kernels_to_the_client(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    from warmcc.daemon.system.sandbox import Sandbox

    if (reason := Sandbox.missing()) is not None:
        pytest.skip(reason)
    one = fresh_daemon(sandbox=True)
    for name, value in one.environment.items():
        monkeypatch.setenv(name, value)
    assert outcome(ADD, "add<float>", constants={"BY": 1}) == "local"
    session.forget()
    assert one.status()["requests"]["declined"] == {"a sandboxed daemon compiles no kernels": 1}


@pytest.mark.slow
def test_nvcc_compiles_the_same_kernels(
    served: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if reason := why_not():
        pytest.skip(reason)
    monkeypatch.setenv("CUDA_HOME", HOME)
    source = f'#include <cstdio>\n#include "by.h"\n{ADD}__global__ void other(int* x) {{}}\n'
    write(tmp_path / "by.h", "#define BY 5\n")

    def made(name: str) -> Compiled:
        kernel = warmcc.kernel(source, name, compiler="nvcc", include_dirs=[tmp_path])
        return kernel.compile("sm_90")

    first = made("add<float>")
    assert (first.outcome, first.log) == ("miss", "")
    assert first.names == {"add<float>": "_Z3addIfEvPKT_PS0_i"}
    assert made("add<float>").outcome == "hit"
    assert made("other").names == {"other": "_Z5otherPi"}
    write(tmp_path / "by.h", "#define BY 6\n")
    assert made("add<float>").outcome == "miss"
    monkeypatch.setenv("WARMCC_DISABLE", "1")
    assert made("add<double>").names == {"add<double>": "_Z3addIdEvPKT_PS0_i"}
    with pytest.raises(CompileError) as caught:
        wrong = "__global__ void f(int* x) { *x = y; }"
        warmcc.kernel(wrong, compiler="nvcc").compile("sm_90")
    assert [(one.file, one.line) for one in caught.value.diagnostics] == [("kernel.cu", 1)]


# Takes NVRTC more than a second on the fastest machines, so that it is worth precompiling.
_LONG = "".join(f"__device__ inline int f{n}(int x) {{ return x + {n}; }}\n" for n in range(60_000))
_HEAVY = """// what follows is read once
#include <cuda/std/array>
#include "long.h"
#include "own.h"
__global__ void heavy(int* x) {{ cuda::std::array<int, 2> a{{BY, {number}}}; x[0] = a[x[1]]; }}
"""


def _wait_for(daemon: Daemon, said: str, times: int) -> None:
    deadline = time.monotonic() + 120
    while daemon.log().count(said) < times:
        assert time.monotonic() < deadline, daemon.log()
        time.sleep(0.1)


@needs_nvrtc
@pytest.mark.slow
def test_headers_are_precompiled_and_never_stale(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also where a header is edited within a second, which NVRTC does not notice."""
    one = fresh_daemon()
    for name, value in one.environment.items():
        monkeypatch.setenv(name, value)
    own = tmp_path / "own.h"
    write(own, "#define BY 3\n")
    write(tmp_path / "long.h", _LONG)

    ways: list[str] = []

    def image(number: int, *, here: bool = False) -> bytes:
        source = _HEAVY.format(number=number)
        kernel = warmcc.kernel(source, "heavy", include_dirs=[tmp_path])
        if here:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("WARMCC_DISABLE", "1")
                return kernel.compile("sm_90").image
        found = kernel.compile("sm_90")
        assert found.outcome == "miss"
        ways.append(found.way)
        return found.image

    image(1)
    _wait_for(one, "precompiled what kernels include", 1)
    with_it = image(2)
    assert with_it == image(2, here=True)
    write(own, "#define BY 4\n")
    changed = image(2)
    assert changed != with_it and changed == image(2, here=True)
    assert ways == ["nvrtc", "nvrtc, behind a precompiled header", "nvrtc"]
    assert len(list(one.folder.rglob("*.pch"))) <= 1
    _wait_for(one, "precompiled what kernels include", 2)
    with pytest.raises(CompileError) as caught:
        warmcc.kernel(_HEAVY.format(number="nothing"), "heavy", include_dirs=[tmp_path]).compile(
            "sm_90"
        )
    assert [found.line for found in caught.value.diagnostics] == [5]
    session.forget()
    one.stop()
    assert not list(one.folder.rglob("*.pch"))
