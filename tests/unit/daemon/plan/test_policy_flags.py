"""Flags that a shared daemon takes and refuses: each form alone, with what is near it."""

from __future__ import annotations

import pytest

from tests.support.refusals import MACHINE, refused
from warmcc.daemon.plan.policy import Policy
from warmcc.daemon.plan.stock import Plan


def of_plan(**flags: str) -> str | None:
    return Policy(MACHINE).why_not(Plan("", {}, [], "", **flags))


def of_nvccs_plan(**flags: str) -> str | None:
    return of_plan(nvcc="/usr/local/cuda/bin/nvcc", **flags)


HARMLESS = [
    "-O", "-O3", "-Ofast", "-DX", "-DX=1", "-UX", "-W", "-Wall", "-Wno-unused", "-Wformat=2",
    "-Wlarger-than=1", "-w",
    "-std=c++20", "-std=gnu++17", "-g", "-g3", "-ggdb", "-march=native", "-mavx2",
    "-mtune=x86-64,a", "-fPIC",
    "-fvisibility=hidden", "-fno-exceptions", "-lm", "-lstdc++", "-lc10_cuda", "-ansi", "-pthread",
    "-pipe", "-rdynamic",
    "-shared", "-s", "-v", "-pedantic", "-pedantic-errors", "-nostdinc++", "-I/a", "-L/a",
    "-isystem/a", "-iquote/a",
    "-idirafter/a", "-I", "-L", "-isystem", "-iquote", "-idirafter", "/a", "/a/libb.so",
    "-Wl,--as-needed",
    "-Wl,--no-as-needed", "-Wl,--no-undefined", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,defs",
    "-Wl,-z,noexecstack",
    "-Wl,--gc-sections", "-Wl,-O1", "-Wl,--strip-all", "-Wl,-s", "-Wl,--export-dynamic",
    "-Wl,-Bsymbolic",
    "-Wl,-Bsymbolic-functions", "-Wl,-rpath,/a", "-Wl,-rpath=/a", "-Wl,-rpath,'$$ORIGIN/..'",
]  # fmt: skip
NOT_HARMLESS = [
    "a", "a.o", "-Ia", "-La", "-isystema", "-iquote.", "-idirafter..", "-l", "-l:x", "-l/x", "-x",
    "-E", "-S", "-c", "-o", "-o/a",
    "-Wl,-T,/x", "-Wl,-plugin,/x.so", "-Wl,-z,x", "-Wl,--as-needed,-T", "-Wl,-rpath,a",
    "-Wl,-rpath,/a,-T", "-Wl,-Map=/x",
    "-Wa,-o,/x", "-Wp,-MD,/x", "-Wl,", "-B/a", "-specs=/a", "@a", "-D", "-U", "-std=", "-f", "-m",
    "--sysroot=/a",
    "-fvisibility=/a", "-include", "-imacros", "-Xlinker", "-T", "-MD", "-MF", "/a,b", "-wrapper",
    "-ansix", "-sx",
    "-gx/y", "-march=a/b", "-pedanticx", "-nostdinc", "-no-pie", "-static", "-r", "--coverage",
    "-Wl,-O", "-pthreads",
]  # fmt: skip
# Of the form of harmless ones.
HARMFUL = [
    "-fplugin=evil", "-fplugin-arg-x=1", "-fpass-plugin=x", "-fdump-tree-all", "-fprofile-generate",
    "-fprofile-use=x",
    "-fauto-profile", "-fbranch-probabilities", "-fcallgraph-info", "-fstack-usage", "-fmodules",
    "-fmodule-header",
    "-fcompare-debug", "-fdiagnostics-add-output=x", "-fuse-ld=mold", "-flto-partition=none",
    "-fsave-optimization-record", "-foffload=x", "-mllvm", "-mllvm=x", "-fopt-info-all",
    "-ftest-coverage",
    "-frandom-seed=1", "-fdeps-file=x", "-finput-charset=x", "-fself-test=x", "-gsplit-dwarf",
    "-save-temps",
]  # fmt: skip


@pytest.mark.parametrize("field", ["cflags", "post_cflags", "ldflags"])
def test_harmless_flags_of_a_plan_are_taken(field: str) -> None:
    for flag in HARMLESS:
        assert of_plan(**{field: flag}) is None, flag
    assert of_plan(**{field: " ".join(HARMLESS)}) is None


@pytest.mark.parametrize("field", ["cflags", "post_cflags", "ldflags"])
@pytest.mark.parametrize("flag", [*NOT_HARMLESS, *HARMFUL])
def test_any_other_flag_of_a_plan_is_refused(flag: str, field: str) -> None:
    assert of_plan(**{field: flag}) == f"the flag {flag}"
    assert of_plan(**{field: f"-O2 {flag} -w"}) == f"the flag {flag}"
    assert of_nvccs_plan(**{field: flag}) == f"the flag {flag}"


@pytest.mark.parametrize("field", ["extra_cflags", "extra_ldflags"])
def test_flags_of_a_request(field: str) -> None:
    assert refused(**{field: ["-O2", "-DX='a b' -Wall"]}) is None
    assert refused(**{field: ["-O2", "-frandom-seed=1"]}) == "the flag -frandom-seed=1"
    assert refused(**{field: ["-O2 -nostdinc", "-w"]}) == "the flag -nostdinc"
    assert refused(**{field: ["-O2", "-save-temps"]}) == "the flag -save-temps"
    assert refused(**{field: ["$(id)"]}) == "the flags: ninja would read '$('"


def test_flags_of_a_request_for_nvcc() -> None:
    assert refused(extra_cuda_cflags=["-O2", "-Xcompiler -O3,-Wall", "-lineinfo"]) is None
    assert refused(extra_cuda_cflags=["-O2", "--keep"]) == "the flag --keep"
    assert refused(extra_cuda_cflags=["$(id)"]) == "the flags: ninja would read '$('"
    said = refused(extra_cuda_cflags=["-Xcompiler=-fplugin=x"])
    assert said == "the flags: -Xcompiler -fplugin=x"


@pytest.mark.parametrize("option", ["-Xcompiler", "--compiler-options"])
def test_what_nvcc_hands_on_is_looked_at(option: str) -> None:
    """Of what nvcc takes itself, each word may be one that only the host's compiler acts on."""
    bad = "-frandom-seed=1"

    for words in (
        f"{option} {bad}",
        f"{option}={bad}",
        f"{option} -O2,{bad},-w",
        f"{option}=-O2,{bad}",
        f"{option} -O2 {option} {bad}",
        f"{option}=-O2 {option}={bad}",
        f"{option} {bad} {option} -O2",
        f"{option}={bad} {option}=-O2",
    ):
        assert refused(extra_cuda_cflags=[words]) == f"the flag {bad}", words
        assert of_nvccs_plan(cuda_cflags=words) == f"the flag {bad}", words
        assert of_nvccs_plan(cuda_post_cflags=words) == f"the flag {bad}", words
    assert refused(extra_cuda_cflags=[option, bad]) == f"the flag {bad}"
    for words in (f"{option} -O2 -lineinfo", f"{option}=-O2 --restrict", f"{option} -O2,-w -G"):
        assert refused(extra_cuda_cflags=[words]) is None, words
    assert refused(extra_cuda_cflags=[f"{option} {option} -G"]) == f"the flag {option}"


# ---------------------------------------------------------------------- nvcc's plan


def test_nvccs_flags_count_where_there_is_an_nvcc() -> None:
    assert of_plan(cuda_cflags="--keep") is None
    assert of_nvccs_plan(cuda_cflags="--keep") == "the flag --keep"
    assert of_nvccs_plan(cuda_post_cflags="--keep") == "the flag --keep"
    assert of_nvccs_plan(cuda_cflags="-O2", cuda_post_cflags="-G") is None


def test_folders_of_a_plan_may_have_any_name() -> None:
    assert of_nvccs_plan(cuda_cflags="'-I/a b' -I/c") is None
    assert of_nvccs_plan(cuda_cflags="'-I/a b' --keep") == "the flag --keep"
    assert of_nvccs_plan(cuda_cflags="'-Ia b'") == "the flags: -Ia b"


def test_the_compiler_that_nvcc_calls_is_the_machines() -> None:
    evil = "the flag -ccbin '/tmp/evil': it is none of its compilers"
    assert of_nvccs_plan(cuda_cflags="-O2 -ccbin g++ -G") is None
    assert of_nvccs_plan(cuda_cflags="-ccbin g++ -ccbin /usr/bin/g++") is None
    assert of_nvccs_plan(cuda_cflags="-ccbin /tmp/evil") == evil
    assert of_nvccs_plan(cuda_cflags="-ccbin g++", cuda_post_cflags="-ccbin /tmp/evil") == evil
    assert of_nvccs_plan(cuda_cflags="-ccbin g++ --keep") == "the flag --keep"
    said = "the flag -ccbin '': it is none of its compilers"
    assert of_nvccs_plan(cuda_cflags="-O2 -ccbin") == said


def test_a_dollar_in_quotes_is_a_letter() -> None:
    assert of_nvccs_plan(cuda_cflags="-DX='$$y'") is None
