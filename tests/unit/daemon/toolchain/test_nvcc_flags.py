"""Each form of a flag for nvcc that is understood, and what is near it and is not."""

from __future__ import annotations

import pytest

from warmcc.daemon.toolchain import nvcc_flags
from warmcc.daemon.toolchain.nvcc_flags import unkeyable

UNDERSTOOD = [
    "-O", "-O0", "-O1", "-O2", "-O3", "--optimize=3", "-DNAME", "-DNAME=1", "-UNAME", "-I/a",
    "-isystem=/a",
    "-std=c++17", "--std=c++20", "-g", "-G", "--device-debug", "--debug", "-lineinfo",
    "--generate-line-info",
    "-use_fast_math", "--use_fast_math", "-w", "-m64", "-res-usage", "--resource-usage",
    "-ftz=true", "--ftz=false", "-prec-div=true", "--prec-div=false", "-prec-sqrt=true",
    "--prec-sqrt=false",
    "-fmad=true", "--fmad=false", "-maxrregcount=64", "--maxrregcount=64", "-maxrregcount64",
    "-extended-lambda", "--extended-lambda", "-expt-extended-lambda", "--expt-extended-lambda",
    "-expt-relaxed-constexpr", "--expt-relaxed-constexpr", "--extra-device-vectorization",
    "-restrict",
    "--restrict", "-gencode=arch=compute_90a,code=sm_90a", "--gencode=arch=compute_90,code=sm_90",
    "--gpu-architecture=sm_90", "-arch=sm_90", "--arch=native", "-gpu-code=sm_90",
    "--gpu-code=sm_90,sm_80",
    "-code=sm_90", "--default-stream=per-thread", "-default-stream=legacy",
    "-diag-suppress=20012,1",
    "--diag-suppress=20012", "-Wno-deprecated-gpu-targets", "--Wno-deprecated-gpu-targets",
    "--threads=4",
    "-threads=4", "--split-compile=2", "-split-compile=0", "-t=4", "-t4", "-Wall-warnings",
    "-Werror",
    "-Werror=all-warnings", "-Wno-unused", "-Wreorder", "-Wext-lambda-captures-this",
    "-D__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_OPERATORS__",
    "-allow-unsupported-compiler", "--allow-unsupported-compiler", "--source-in-ptx",
    "-source-in-ptx", "--compress-mode=size", "-compress-mode=balance",
]  # fmt: skip
NOT_UNDERSTOOD = [
    "-O4", "-Ofast", "-O33", "x-O3", "--optimize", "--optimize=33", "-std=gnu++17", "-std=c++1",
    "-std=c++177",
    "--std=", "-gg", "-G1", "--debugx", "-lineinfox", "x-w", "-m32", "-ftz=1", "-ftz",
    "-fmad=trueish",
    "---fmad=true", "-maxrregcount=x", "-arch", "-code=", "--diag-suppress=x", "--threads=x",
    "-t=x", "-tx",
    "--split-compile=", "-Wall", "-Wno-", "-Wreorder=", "-Wx", "--keep", "-o/tmp/x",
    "-ccbin=/opt/g++", "-dlto",
    "-rdc=true", "--options-file=x", "-odir=/tmp", "-ptx", "-cubin", "--dryrun", "-run", "-MF",
    "-libdevice-directory=/a",
    "-lcudart", "-L/a", "file.cu", "-include=/a", "-x=cu", "--default-stream=a b",
    "-Xlinker=-plugin", "-Xnvlink=-x",
    "-isystem=", "-D", "-U", "-I", "-gencode=", "--gpu-architecture=", "-Xcudafex=1", "-E", "-M",
    "-c",
]  # fmt: skip
TAKES_A_VALUE = [
    "-D", "-U", "-I", "-isystem", "-gencode", "--generate-code", "-arch", "--gpu-architecture",
    "-code", "--gpu-code",
    "-std", "--std", "-maxrregcount", "--maxrregcount", "--threads", "-t", "--default-stream",
    "-default-stream",
    "-diag-suppress", "--diag-suppress", "--include-path", "--system-include", "--define-macro",
    "--undefine-macro",
]  # fmt: skip
FOR_PTXAS = [
    "-O0", "-O4", "-v", "--verbose", "-w", "--warn-on-spills", "-warn-lmem-usage", "-dlcm=ca",
    "-dscm=wt",
    "--allow-expensive-optimizations=true", "-lineinfo", "-maxrregcount=32", "--maxrregcount=32",
    "--register-usage-level=5", "--def-load-cache=ca", "--def-store-cache=wb", "--warn-spills",
    "--disable-warnings", "--opt-level=3",
]  # fmt: skip
NOT_FOR_PTXAS = [
    "-O5", "-O", "-vv", "-o=/tmp/x", "--output-file=/tmp/x", "-dlcm=", "--register-usage-level=x",
    "--def-cache=ca",
    "-maxrregcount=", "--no-such", "--opt-level=5", "--opt-level", "--options-file=x", "file.ptx",
]  # fmt: skip
FOR_CUDAFE = [
    "--diag_suppress=177", "--diag_warning=a", "--diag_error=1", "--diag_remark=1",
    "--display_error_number",
    "--promote_warnings",
]  # fmt: skip
NOT_FOR_CUDAFE = ["--diag_suppress=", "--diag_other=1", "--dump=/tmp/x", "--display_error", "x"]
SEARCHES = [
    "-I/a", "-I", "-isystem/a", "-isystem", "-iquote/a", "-idirafter/a", "-include/a", "-include",
    "-imacros/a",
]  # fmt: skip


@pytest.mark.parametrize("flag", UNDERSTOOD)
def test_a_flag_that_is_understood(flag: str) -> None:
    assert unkeyable([flag]) is None
    assert unkeyable(["-O2", flag, "-w"]) is None
    assert unkeyable([f"-O2 {flag} -w"]) is None


@pytest.mark.parametrize("flag", [flag for flag in NOT_UNDERSTOOD if flag not in TAKES_A_VALUE])
def test_a_flag_that_is_not_understood_is_named(flag: str) -> None:
    first = flag.partition(" ")[0]
    expected = "b" if " " in flag else first
    assert unkeyable([flag]) == expected
    assert unkeyable(["-O2", flag, "-w"]) == expected


@pytest.mark.parametrize("flag", TAKES_A_VALUE)
def test_a_flag_takes_the_next_word_and_no_more(flag: str) -> None:
    assert unkeyable([flag, "value"]) is None
    assert unkeyable([f"{flag} value"]) is None
    assert unkeyable([flag, "value", "--keep"]) == "--keep"
    assert unkeyable([flag]) is None  # nvcc says what is missing


def test_all_flags_that_take_the_next_word_are_listed_here() -> None:
    assert set(TAKES_A_VALUE) == nvcc_flags._VALUED


@pytest.mark.parametrize("option", ["-Xptxas", "--ptxas-options"])
def test_what_is_handed_to_ptxas(option: str) -> None:
    for flag in FOR_PTXAS:
        assert unkeyable([f"{option}={flag}"]) is None, flag
        assert unkeyable([option, flag]) is None, flag
        assert unkeyable([f"{option} -v,{flag},-w", "-O2"]) is None, flag
    for flag in NOT_FOR_PTXAS:
        assert unkeyable([f"{option}={flag}"]) == f"{option} {flag}"
        assert unkeyable([option, f"-v,{flag}", "-O2"]) == f"{option} {flag}"


def test_what_is_handed_to_cudafe() -> None:
    for flag in FOR_CUDAFE:
        assert unkeyable([f"-Xcudafe {flag}"]) is None, flag
    for flag in NOT_FOR_CUDAFE:
        assert unkeyable([f"-Xcudafe {flag}"]) == f"-Xcudafe {flag}"
    assert unkeyable(["-Xcudafe", "--display_error_number,--dump"]) == "-Xcudafe --dump"
    assert unkeyable(["-Xcudafe --diag_suppress=1,2"]) == "-Xcudafe 2"  # stock's: a list of its own


def test_how_many_steps_run_at_a_time_makes_no_other_result() -> None:
    rest = ["-O3", "--ptxas-options=-v", "-std=c++17", "-time=x", "--threads-x=1", "-tx"]
    for words in (
        ["--threads", "4"],
        ["-t", "4"],
        ["-threads", "4"],
        ["--threads=4"],
        ["-t4"],
        ["-t=4"],
    ):
        assert nvcc_flags.without_threads([*rest[:2], *words, *rest[2:]]) == rest
    assert nvcc_flags.without_threads(["-O3", "--threads"]) == ["-O3"]


@pytest.mark.parametrize("option", ["-Xfatbin", "--fatbin-options"])
def test_what_is_handed_to_fatbinary(option: str) -> None:
    for flag in ("-compress-all", "--compress-all", "--compress=true", "-compress=false"):
        assert unkeyable([f"{option}={flag}"]) is None, flag
        assert unkeyable([option, flag]) is None, flag
    for flag in ("--create=/tmp/x", "-compress", "--compress=", "--compress-all=x", "x"):
        assert unkeyable([option, flag]) == f"{option} {flag}"


@pytest.mark.parametrize("option", ["-Xcompiler", "--compiler-options"])
def test_what_is_handed_to_the_hosts_compiler(option: str) -> None:
    for flag in ("-fPIC", "-O2,-Wall", "-march=native", "-DX=1", "-fopenmp"):
        assert unkeyable([f"{option}={flag}"]) is None, flag
        assert unkeyable([option, flag]) is None, flag
    for flag in ("-fplugin=x.so", "-save-temps", "-MD", "-B/a", *SEARCHES):
        assert unkeyable([f"{option}={flag}"]) == f"{option} {flag}"
        assert unkeyable([option, flag]) == f"{option} {flag}"
        assert unkeyable([option, f"-O2,{flag},-Wall", "-O2"]) == f"{option} {flag}"
    assert unkeyable([option, "-O2", "-fPIC"]) == "-fPIC"  # nvcc's own word again


def test_a_value_of_what_is_handed_on_may_be_missing() -> None:
    """nvcc says so."""
    for option in ("-Xcompiler", "-Xptxas", "-Xcudafe"):
        assert unkeyable([option]) is None
        assert unkeyable(["-O2", f"{option}=", "--verbose" if option == "-Xptxas" else ""]) is None


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["$(id)"], "ninja would read '$('"),
        (["-DX=`id`"], "the shell would read '`'"),
        (["-O2", "-DX=a;b"], "the shell would read ';'"),
        (["-DX='a"], "a quote is not closed"),
        (["-DX\n"], r"the control character '\n' is not allowed"),
        (["@file"], "@file"),
        (["-Xcompiler", "@file"], "@file"),
    ],
)
def test_what_means_more_than_its_words_is_not_understood(flags: list[str], said: str) -> None:
    assert unkeyable(flags) == said


def test_a_quoted_flag_is_one_word() -> None:
    assert unkeyable(["-DX='a b'"]) == "-DX=a b"
    assert unkeyable(["-D", "'X=a b'"]) is None


def test_flags_of_the_hosts_compiler_that_mean_something_else_to_nvcc() -> None:
    """What g++'s rules refuse is judged by nvcc's."""
    assert unkeyable(["-D", "-E"]) is None
    assert unkeyable(["-I-"]) is None


def test_no_flags_are_understood() -> None:
    assert unkeyable([]) is None
    assert unkeyable([""]) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "--use_fast_math -lineinfo -DN=a/b", "-I/a -I /b -isystem=/c -isystem /d",
        "--include-path /a --system-include /b", "-gencode arch=compute_90,code=sm_90",
        "--threads 4 -D N", "-Xcompiler -O3,-fopenmp", "-Xcompiler=-I/a",
        "--compiler-options -Wall", "/a/b.o", "-Xfatbin -compress-all --fatbin-options=x",
        "-Xptxas --def-load-cache=ca --ptxas-options=--def-load-cache=ca",
        "-Xcudafe --diag_suppress=a --fatbin-options --compress-mode=x", "-O3 -Xcompiler", "-O3 -D",
    ],
)  # fmt: skip
def test_no_relative_path(text: str) -> None:
    assert not nvcc_flags.relative_paths(text)


@pytest.mark.parametrize(
    "text",
    [
        "-Ia", "-I a", "-I", "-isystem=a", "-isystem a", "--include-path a", "--system-include",
        "-Xcompiler -Ia", "-Xcompiler=-O2,-Ia", "--compiler-options '-include a'", "a.o",
        "-D N -I/a --keep", "'open",
    ],
)  # fmt: skip
def test_a_relative_path(text: str) -> None:
    assert nvcc_flags.relative_paths(text)
