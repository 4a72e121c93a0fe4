"""Hostile flags, variables and includes: what a shared daemon refuses, and what a sandbox keeps
from a compiler.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, request
from tests.support.daemons import Daemon
from warmcc.config import Config
from warmcc.daemon.plan import policy as policies
from warmcc.daemon.plan.machine import Machine
from warmcc.daemon.plan.policy import Forbidden, Policy
from warmcc.daemon.plan.stock import Plan
from warmcc.daemon.plan.zygotes import StockError, ZygotePool
from warmcc.errors import ConfigError
from warmcc.protocol import Built, Declined, Failed
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Interpreter, Request

Context = zmq.Context[zmq.Socket[bytes]]

HOSTILE = [
    "-fplugin=/tmp/evil.so", "-fplugin=evil", "-fplugin-arg-evil-x=1", "-wrapper /tmp/evil",
    "-wrapper /tmp/evil,x", "-B/tmp/evil", "-B /tmp/evil", "@/tmp/flags", "@flags",
    "-o /home/user/.bashrc", "-o/home/user/.bashrc", "-MF /home/user/.bashrc",
    "-MF/home/user/.bashrc", "-MD", "-MMD", "-fdump-tree-all=/tmp/x", "-fdump-ipa-all",
    "-dumpdir /tmp/", "-dumpbase x", "-specs=/tmp/evil", "--specs=/tmp/evil", "-specs /tmp/evil",
    "-save-temps", "-save-temps=obj", "-fprofile-use=/tmp/p", "-fprofile-generate",
    "-fprofile-dir=/tmp", "-fuse-ld=/tmp/evil", "-fuse-ld=mold", "-x c", "-E", "-S",
    "-aux-info /tmp/x", "-Xclang -load", "-Wl,-plugin,/tmp/evil.so", "-Wl,--plugin=/tmp/evil.so",
    "-Wl,-T,/tmp/script", "-Wl,-o,/tmp/x", "-Wl,-Map=/tmp/x", "-Wl,-dynamic-linker,/tmp/evil",
    "-Wl,--dependency-file=/tmp/x", "-Wl,@/tmp/flags", "-Xlinker -plugin",
    "-Xlinker --plugin=/tmp/evil.so", "-Wa,-o,/tmp/x", "-Wa,--MD,/tmp/x", "-Wp,-MD,/tmp/x",
    "-Xassembler -o", "-fopt-info-all=/tmp/x", "-T /tmp/script",
    "-fdiagnostics-add-output=sarif:file=/tmp/x", "-fcallgraph-info", "-ftest-coverage",
    "--coverage", "$(touch /tmp/x)", "`touch /tmp/x`", "; touch /tmp/x", "| sh", "relative.o",
    "-Lrelative", "-I.", "-I ..", "-include /etc/shadow", "-imacros /etc/shadow", "-frandom-seed=1",
    "-flto-partition=none", "-mllvm -load=/tmp/evil.so", "'open",
]  # fmt: skip
FOR_NVCC = [
    "-ccbin /tmp/evil", "-ccbin=/tmp/evil", "--compiler-bindir=/tmp/evil", "-optf /tmp/flags",
    "--options-file=/tmp/flags", "-keep", "--keep-dir=/tmp", "-odir /tmp", "-run",
    "-Xcompiler -fplugin=/tmp/evil.so", "-Xcompiler=-fplugin=evil", "-Xcompiler -O2,-fplugin=evil",
    "-Xcompiler=-wrapper,/tmp/evil", "--compiler-options -B/tmp/evil", "-Xlinker -plugin",
    "-Xptxas -o=/tmp/x", "-Xptxas --output-file=/tmp/x", "-Xcudafe --dump=/tmp/x", "-Xfatbinary -x",
    "-Xnvlink -x", "-libdevice-directory=/tmp", "-ptx", "-cubin", "-dlto", "@/tmp/flags",
    "-Xcompiler @/tmp/flags", "-I /tmp -ccbin=x",
]  # fmt: skip
HARMLESS = [
    "-O3", "-O2 -g", "-march=native", "-mavx2 -mfma", "-DNAME=1", "-DNAME", "-UNAME",
    "-Wall -Wextra", "-Wno-unused", "-std=c++20", "-ffast-math", "-fopenmp", "-fno-exceptions",
    "-I/usr/include/eigen3", "-isystem /usr/include/eigen3", "-lm", "-L/usr/lib",
    "-Wl,-rpath,/usr/lib", "-pthread", "-fvisibility=hidden", "-w",
]  # fmt: skip
VARIABLES = [
    {"GCC_EXEC_PREFIX": "/tmp/"}, {"COMPILER_PATH": "/tmp"}, {"LD_LIBRARY_PATH": "/tmp"},
    {"CC": "/tmp/evil"}, {"CXX": "/tmp/evil"}, {"CXX": "g++ -fplugin=evil"},
    {"CXX": "/usr/bin/../../tmp/evil"}, {"PYTORCH_NVCC": "/tmp/evil"}, {"CXX": "bash"},
    {"CXX": "/bin/sh"}, {"CC": "python3"}, {"CXX": ""}, {"CUDA_HOME": "/tmp/evil"},
    {"NVCC_PREPEND_FLAGS": "-ccbin=/tmp/evil"}, {"NVCC_APPEND_FLAGS": "-keep"}, {"CPATH": "/tmp"},
    {"LIBRARY_PATH": "/tmp"}, {"CXX": "./evil"}, {"CUDNN_HOME": "/tmp"}, {"CUDA_INC_PATH": "/tmp"},
    {"LD_PRELOAD": "/tmp/evil.so"}, {"MAX_JOBS": "²"}, {"MAX_JOBS": "1;x"},
    {"TORCH_EXTENSIONS_DIR": "relative"}, {"TORCH_CUDA_ARCH_LIST": "9.0\n"},
    {"SOURCE_DATE_EPOCH": "now"}, {"NVCC_CCBIN": "/tmp/evil"},
]  # fmt: skip


def plain(**changes: Any) -> Any:
    environment = {"PATH": "/usr/bin:/bin", **changes.pop("environment", {})}
    return request(environment=environment, **changes)


@pytest.fixture(scope="module")
def policy() -> Policy:
    return Policy(Machine.of(Config(path="/usr/bin:/bin")))


def refused(policy: Policy, wanted: Request) -> str | None:
    try:
        policy.admit(wanted)
    except Forbidden as reason:
        return str(reason)
    return None


@pytest.mark.parametrize("flags", HOSTILE)
@pytest.mark.parametrize("where", ["extra_cflags", "extra_ldflags"])
def test_hostile_flags(flags: str, where: str, policy: Policy) -> None:
    assert "the flag" in (refused(policy, plain(**{where: [flags]})) or "")
    assert "the flag" in (refused(policy, plain(**{where: ["-O2", *flags.split()]})) or "")


@pytest.mark.parametrize("flags", FOR_NVCC)
def test_hostile_flags_for_nvcc(flags: str, policy: Policy) -> None:
    assert "the flag" in (refused(policy, plain(extra_cuda_cflags=[flags])) or "")
    assert "the flag" in (refused(policy, plain(extra_cuda_cflags=["-O2", *flags.split()])) or "")


@pytest.mark.parametrize("environment", VARIABLES)
def test_a_poisoned_environment(environment: dict[str, str], policy: Policy) -> None:
    assert f"the variable {next(iter(environment))}" in (
        refused(policy, plain(environment=environment)) or ""
    )


@pytest.mark.parametrize("flags", HARMLESS)
def test_harmless_flags(flags: str, policy: Policy) -> None:
    assert refused(policy, plain(extra_cflags=[flags])) is None


def test_harmless_flags_for_nvcc(policy: Policy) -> None:
    for flags in (
        "-O3",
        "--use_fast_math",
        "-lineinfo",
        "-gencode=arch=compute_90,code=sm_90",
        "-Xcompiler -O3,-Wall",
    ):
        assert refused(policy, plain(extra_cuda_cflags=[flags])) is None, flags


# ---------------------------------------------------------------------- the allow-list


def test_every_field_and_variable_has_its_check() -> None:
    """Whoever adds a field, or a variable, has to say what it may hold on a shared machine."""
    assert set(policies.REQUEST) == set(Request.__struct_fields__)
    assert set(policies.INTERPRETER) == set(Interpreter.__struct_fields__)
    assert set(policies.ENVIRONMENT) == {*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT}


def test_a_field_without_a_check_is_refused(
    policy: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for table, field in ((policies.REQUEST, "verbose"), (policies.INTERPRETER, "abi")):
        with monkeypatch.context() as patch:
            patch.delitem(table, field)
            assert f"the field {field}" in (refused(policy, plain()) or "")
    with monkeypatch.context() as patch:
        patch.delitem(policies.ENVIRONMENT, "MAX_JOBS")
        assert "the variable MAX_JOBS" in (
            refused(policy, plain(environment={"MAX_JOBS": "2"})) or ""
        )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"with_sycl": True}, "with_sycl"), ({"sycl_sources": ["x"]}, "sycl_sources"),
        ({"extra_sycl_cflags": ["-O2"]}, "extra_sycl_cflags"),
        ({"extra_include_paths": ["relative"]}, "extra_include"),
        ({"extra_include_paths": ["/a\nb"]}, "extra_include_paths"),
        ({"build_directory": "x"}, "build_directory"), ({"sources": ["a.cpp"]}, "sources"),
        ({"cpp_sources": ["a\0b"]}, "cpp_sources"), ({"name": "a b"}, "name"),
        ({"module_name": "-a"}, "module_name"), ({"functions": ["a\nb"]}, "functions"),
        ({"functions": {"a": "b\0"}}, "functions"), ({"name": "a\n"}, "name"),
        ({"name": ".a"}, "name"),
    ],
)  # fmt: skip
def test_what_a_field_may_not_hold(changes: dict[str, Any], said: str, policy: Policy) -> None:
    assert f"the field {said}" in (refused(policy, plain(**changes)) or "")


def test_what_the_machine_puts_in_place_of_the_callers(policy: Policy) -> None:
    poisoned = {
        "PATH": "/tmp/evil",
        "HOME": "/tmp/evil",
        "CCACHE_CONFIGPATH": "/tmp/evil",
        "LC_ALL": "x\n",
    }
    admitted = policy.admit(plain(environment={**poisoned, "CXX": "g++", "MAX_JOBS": "2"}))
    assert not [
        value for value in admitted.environment.values() if "/tmp/evil" in value or "\n" in value
    ]
    assert admitted.environment["PATH"] == "/usr/bin:/bin"
    assert (admitted.environment["CXX"], admitted.environment["MAX_JOBS"]) == ("g++", "2")


@pytest.mark.parametrize("field", ["executable", "torch_dir", "abi"])
def test_another_interpreter(field: str, policy: Policy) -> None:
    other = msgspec.structs.replace(
        calls.interpreter(), **{field: "/tmp/evil" if field != "abi" else ".so"}
    )
    assert "not in `interpreters`" in (refused(policy, plain(interpreter=other)) or "")


def test_another_name_of_the_same_interpreter(policy: Policy, tmp_path: Path) -> None:
    """It is the machine's own name that is run: a link that a caller made is another one a moment
    later.
    """
    own = calls.interpreter()
    (tmp_path / "torch").symlink_to(own.torch_dir)
    asked = msgspec.structs.replace(own, torch_dir=str(tmp_path / "torch"))
    assert policy.admit(plain(interpreter=asked)).interpreter == own


def test_a_plan_is_looked_at_again(policy: Policy) -> None:
    """Whatever way a flag took into stock's plan."""
    harmless = "-DX=1 -isystem /usr/include -fPIC -std=c++20"
    good = Plan("", {}, [], "", cflags=harmless, ldflags="-shared -L/x -lc10")
    assert policy.why_not(good) is None
    for field, flags in (
        ("cflags", "-fplugin=/x.so"),
        ("post_cflags", "-wrapper x"),
        ("ldflags", "-Wl,-T,/x"),
    ):
        bad = dataclasses.replace(good, **{field: flags})  # type: ignore[arg-type]
        assert "the flag" in (policy.why_not(bad) or ""), flags
    kernel = dataclasses.replace(
        good, nvcc="/x/nvcc", cuda_cflags="-ccbin gcc -DX=1 --compiler-options '-fPIC'"
    )
    assert policy.why_not(kernel) is None
    for flags in ("-ccbin /tmp/evil", "-ccbin", "--keep", "-Xcompiler -fplugin=/x.so"):
        bad = dataclasses.replace(kernel, cuda_cflags=flags)
        assert "the flag" in (policy.why_not(bad) or ""), flags


@pytest.mark.parametrize("cuda", [False, True])
def test_the_plan_of_this_torch_is_taken(cuda: bool, policy: Policy) -> None:
    """The words that stock puts around the caller's own."""
    environment = {"TORCH_CUDA_ARCH_LIST": "9.0", "CC": "gcc"} if cuda else {}
    sources = ["__global__ void nothing() {}"] if cuda else []
    flags = {
        "extra_cflags": ["-O2"],
        "extra_ldflags": ["-Wl,-rpath,'$$ORIGIN'"],
        "extra_include_paths": ["/a b"],
    }
    wanted = policy.admit(plain(environment=environment, cuda_sources=sources, **flags))

    async def ask() -> Plan | StockError:
        pool = ZygotePool()
        try:
            return await pool.plan(wanted)
        finally:
            await pool.close()

    plan = asyncio.run(ask())
    assert isinstance(plan, Plan) and plan.unsupported is None, plan
    assert ("-gencode" in plan.cuda_cflags) == cuda
    assert policy.why_not(plan) is None


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"interpreters": ["/bin/false"]}, "its torch cannot be found"),
        (
            {"interpreters": ["/nowhere/python"]},
            "name the Pythons that callers use in interpreters",
        ),
        ({"path": "/usr/bin:bin"}, "'bin' is not an absolute folder"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        Machine.of(Config(**settings))


def test_a_shared_daemon_refuses_and_goes_on(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon(shared=True, ccache=False)
    connection = Connection(daemon, context)
    for flags in ("-fplugin=/tmp/evil.so", "@/tmp/flags", "-o /tmp/x"):
        answer = connection.build(plain(extra_cflags=[flags]))
        assert isinstance(answer, Failed) and "is shared, and refuses the flag" in answer.message, (
            answer
        )
        assert "WARMCC_DISABLE=1" in answer.message, "it says what to do"
    assert isinstance(connection.build(plain(extra_cflags=["-O2"])), Built)
    assert sum(daemon.status()["requests"]["refused"].values()) == 3


def test_in_ones_own_daemon_they_are_stocks(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    answer = Connection(fresh_daemon(), context).build(
        plain(extra_cflags=["-fplugin=/tmp/mine.so"])
    )
    assert isinstance(answer, Declined) and answer.expected
