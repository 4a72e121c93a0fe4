"""Hostile flags, variables and includes: what a shared daemon refuses, and what a sandbox keeps from a compiler."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests import calls
from tests.calls import Connection, load_request, module_source, request
from tests.daemons import Daemon
from warmcc.daemon import confine, policy
from warmcc.protocol import Built, Declined, Failed

Context = zmq.Context[zmq.Socket[bytes]]

HOSTILE = [
    "-fplugin=/tmp/evil.so", "-fplugin=evil", "-fplugin-arg-evil-x=1", "-wrapper /tmp/evil", "-wrapper /tmp/evil,x",
    "-B/tmp/evil", "-B /tmp/evil", "@/tmp/flags", "@flags", "-o /home/user/.bashrc", "-o/home/user/.bashrc",
    "-MF /home/user/.bashrc", "-MF/home/user/.bashrc", "-MD", "-MMD", "-fdump-tree-all=/tmp/x", "-fdump-ipa-all",
    "-dumpdir /tmp/", "-dumpbase x", "-specs=/tmp/evil", "--specs=/tmp/evil", "-specs /tmp/evil", "-save-temps",
    "-save-temps=obj", "-fprofile-use=/tmp/p", "-fprofile-generate", "-fprofile-dir=/tmp", "-fuse-ld=/tmp/evil",
    "-fuse-ld=mold", "-x c", "-E", "-S", "-aux-info /tmp/x", "-Xclang -load", "-Wl,-plugin,/tmp/evil.so",
    "-Wl,--plugin=/tmp/evil.so", "-Wl,-T,/tmp/script", "-Wl,-o,/tmp/x", "-Wl,-Map=/tmp/x",
    "-Wl,-dynamic-linker,/tmp/evil",
    "-Wl,--dependency-file=/tmp/x", "-Wl,@/tmp/flags", "-Xlinker -plugin", "-Xlinker --plugin=/tmp/evil.so",
    "-Wa,-o,/tmp/x", "-Wa,--MD,/tmp/x", "-Wp,-MD,/tmp/x", "-Xassembler -o", "-fopt-info-all=/tmp/x", "-T /tmp/script",
    "-fdiagnostics-add-output=sarif:file=/tmp/x", "-fcallgraph-info", "-ftest-coverage", "--coverage",
    "$(touch /tmp/x)",
    "`touch /tmp/x`", "; touch /tmp/x", "| sh", "relative.o", "-Lrelative", "-I.", "-I ..", "-include /etc/shadow",
    "-imacros /etc/shadow", "-frandom-seed=1", "-flto-partition=none", "-mllvm -load=/tmp/evil.so", "'open",
]  # fmt: skip
FOR_NVCC = [
    "-ccbin /tmp/evil", "-ccbin=/tmp/evil", "--compiler-bindir=/tmp/evil", "-optf /tmp/flags",
    "--options-file=/tmp/flags",
    "-keep", "--keep-dir=/tmp", "-odir /tmp", "-run", "-Xcompiler -fplugin=/tmp/evil.so", "-Xcompiler=-fplugin=evil",
    "-Xcompiler -O2,-fplugin=evil", "-Xcompiler=-wrapper,/tmp/evil", "--compiler-options -B/tmp/evil",
    "-Xlinker -plugin",
    "-Xptxas -o=/tmp/x", "-Xptxas --output-file=/tmp/x", "-Xcudafe --dump=/tmp/x", "-Xfatbinary -x", "-Xnvlink -x",
    "-libdevice-directory=/tmp", "-ptx", "-cubin", "-dlto", "@/tmp/flags", "-Xcompiler @/tmp/flags", "-I /tmp -ccbin=x",
]  # fmt: skip
HARMLESS = [
    "-O3", "-O2 -g", "-march=native", "-mavx2 -mfma", "-DNAME=1", "-DNAME", "-UNAME", "-Wall -Wextra", "-Wno-unused",
    "-std=c++20", "-ffast-math", "-fopenmp", "-fno-exceptions", "-I/usr/include/eigen3", "-isystem /usr/include/eigen3",
    "-lm", "-L/usr/lib", "-Wl,-rpath,/usr/lib", "-pthread", "-fvisibility=hidden", "-w",
]  # fmt: skip
VARIABLES = [
    {"GCC_EXEC_PREFIX": "/tmp/"}, {"COMPILER_PATH": "/tmp"}, {"LD_LIBRARY_PATH": "/tmp"}, {"CC": "/tmp/evil"},
    {"CXX": "/tmp/evil"}, {"CXX": "g++ -fplugin=evil"}, {"CXX": "/usr/bin/../../tmp/evil"},
    {"PYTORCH_NVCC": "/tmp/evil"},
    {"CUDA_HOME": "/tmp/evil"}, {"NVCC_PREPEND_FLAGS": "-ccbin=/tmp/evil"}, {"NVCC_APPEND_FLAGS": "-keep"},
    {"CPATH": "/tmp"}, {"CCACHE_CONFIGPATH": "/tmp/evil"}, {"LIBRARY_PATH": "/tmp"}, {"CXX": "./evil"},
]  # fmt: skip


def plain(**changes: Any) -> Any:
    environment = {"PATH": "/usr/bin:/bin", **changes.pop("environment", {})}
    return request(environment=environment, **changes)


@pytest.mark.parametrize("flags", HOSTILE)
@pytest.mark.parametrize("where", ["extra_cflags", "extra_ldflags"])
def test_hostile_flags(flags: str, where: str) -> None:
    assert policy.refused(plain(**{where: [flags]})) is not None
    assert policy.refused(plain(**{where: ["-O2", *flags.split()]})) is not None


@pytest.mark.parametrize("flags", FOR_NVCC)
def test_hostile_flags_for_nvcc(flags: str) -> None:
    assert policy.refused(plain(extra_cuda_cflags=[flags])) is not None
    assert policy.refused(plain(extra_cuda_cflags=["-O2", *flags.split()])) is not None


@pytest.mark.parametrize("environment", VARIABLES)
def test_a_poisoned_environment(environment: dict[str, str]) -> None:
    assert policy.refused(plain(environment=environment)) is not None


@pytest.mark.parametrize("flags", HARMLESS)
def test_harmless_flags(flags: str) -> None:
    assert policy.refused(plain(extra_cflags=[flags])) is None


def test_harmless_flags_for_nvcc() -> None:
    for flags in ("-O3", "--use_fast_math", "-lineinfo", "-gencode=arch=compute_90,code=sm_90", "-Xcompiler -O3,-Wall"):
        assert policy.refused(plain(extra_cuda_cflags=[flags])) is None, flags


def test_a_shared_daemon_refuses_and_goes_on(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon(shared=True, ccache=False)
    connection = Connection(daemon, context)
    for flags in ("-fplugin=/tmp/evil.so", "@/tmp/flags", "-o /tmp/x"):
        answer = connection.build(plain(extra_cflags=[flags]))
        assert isinstance(answer, Failed) and "is shared, and refuses the flag" in answer.message, answer
    assert isinstance(connection.build(plain(extra_cflags=["-O2"])), Built)
    assert sum(daemon.status()["requests"]["refused"].values()) == 3


def test_in_ones_own_daemon_they_are_stocks(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    answer = Connection(fresh_daemon(), context).build(plain(extra_cflags=["-fplugin=/tmp/mine.so"]))
    assert isinstance(answer, Declined) and answer.expected


# ---------------------------------------------------------------------- the sandbox


@pytest.fixture
def sandboxed(fresh_daemon: Callable[..., Daemon]) -> Daemon:
    if confine.version() == 0:
        pytest.skip("this kernel has no Landlock")
    return fresh_daemon(sandbox=True)


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "secret.h"
    path.write_text('#error "the secret was read"\n')
    yield path


@pytest.mark.parametrize(
    "code",
    [
        '#include "{path}"\n',
        '#if __has_include("{path}")\n#error "the secret was seen"\n#endif\n#include "{path}"\n',
        'asm(".incbin \\"{path}\\"");\n',
        'asm(".include \\"{path}\\"");\n',
    ],
)
def test_a_source_reads_nothing_that_is_no_input(code: str, sandboxed: Daemon, secret: Path, context: Context) -> None:
    answer = Connection(sandboxed, context).build(plain(cpp_sources=[code.format(path=secret) + module_source()]))
    assert isinstance(answer, Failed), answer
    assert "the secret was" not in answer.message
    assert "Permission denied" in answer.message or "file not found" in answer.message, answer


@pytest.mark.slow
def test_what_is_an_input_is_read(sandboxed: Daemon, tmp_path: Path, context: Context) -> None:
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "n.h").write_text("#define N 7\n")
    (tmp_path / "beside.h").write_text("#define M 6\n")
    source = tmp_path / "a.cpp"
    source.write_text('#include "beside.h"\n#include <n.h>\n' + module_source().replace("42", "N * M"))
    wanted = load_request([source], extra_include_paths=[str(tmp_path / "include")])
    connection = Connection(sandboxed, context)
    assert calls.load(connection.build(wanted), "tiny").answer() == 42
    with_torch = plain(cpp_sources=["#include <torch/types.h>\n" + module_source(8)])
    assert calls.load(connection.build(with_torch), "tiny").answer() == 8


def test_a_flag_writes_nowhere_else(sandboxed: Daemon, tmp_path: Path, context: Context) -> None:
    """-fdump is left to stock by its flag alone; a pragma asks for the same."""
    target = tmp_path / "written"
    code = f'asm(".section .x\\n.pushsection .y\\n.popsection");\n#pragma GCC optimize ("O2")\n#line 1 "{target}"\n'
    answer = Connection(sandboxed, context).build(plain(cpp_sources=[code + module_source(9)]))
    assert isinstance(answer, (Built, Failed))
    assert not target.exists()


def test_no_sandbox_no_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it cannot be had, nothing runs without it."""
    from warmcc.daemon.sandbox import Sandbox

    monkeypatch.setattr(confine, "version", lambda: 0)
    assert "no Landlock" in (Sandbox.missing() or "")
    with pytest.raises(OSError, match="no Landlock"):
        confine.restrict(["/"], [])
    assert os.access("/", os.R_OK)
