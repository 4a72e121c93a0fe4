"""Fields and variables that a shared daemon takes and refuses: each rule alone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.refusals import MACHINE, PYTHON, refused, request
from warmcc.daemon.plan import policy as policies
from warmcc.daemon.plan.policy import Policy
from warmcc.protocol import Failed
from warmcc.request import Interpreter, Request


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("name", "a b", "'a b', which is not a name for an extension"),
        ("name", "a" * 150 + "/", f"{'a' * 100!r}, which is not a name for an extension"),
        ("module_name", "-a", "'-a', which is not a name for an extension"),
        ("sources", ["/a.cpp", "b.cpp"], "'b.cpp', which is not an absolute path"),
        ("sources", ["/a\x7f"], r"'/a\x7f', which is not an absolute path"),
        ("cpp_sources", ["int a;", "\0"], r"'\x00', which is not text"),
        ("cuda_sources", ["\x1b"], r"'\x1b', which is not text"),
        ("functions", ["f", "a\nb"], r"'a\nb', which is not text in one line"),
        ("functions", {"f": "a\n", "g": "\0"}, r"'\x00', which is not text"),
        ("functions", {"a\x9f": ""}, r"'a\x9f', which is not text in one line"),
        ("extra_include_paths", ["/a", "b"], "'b', which is not an absolute path"),
        ("build_directory", "b", "'b', which is not an absolute path"),
    ],
)
def test_what_a_field_may_not_hold(field: str, value: Any, said: str) -> None:
    assert refused(**{field: value}) == f"the field {field} {said}"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("call", "load"), ("name", "a.b+c-d"), ("sources", ["/a.cpp", "/b c.cu"]),
        ("cpp_sources", ["a\n\tb", ""]),
        ("cuda_sources", ["ä\r\n"]), ("functions", None), ("functions", []),
        ("functions", ["f g", "h"]),
        ("functions", {"f": "a\nb"}), ("extra_include_paths", ["/a b"]), ("build_directory", None),
        ("build_directory", "/a"), ("verbose", True), ("with_cuda", True),
        ("is_python_module", False),
        ("is_standalone", True), ("with_pytorch_error_handling", False),
        ("keep_intermediates", False),
        ("use_pch", True), ("no_implicit_headers", True), ("with_sycl", False),
        ("sycl_sources", []),
    ],
)  # fmt: skip
def test_what_a_field_may_hold(field: str, value: Any) -> None:
    assert refused(**{field: value}) is None


@pytest.mark.parametrize("field", ["sycl_sources", "extra_sycl_cflags", "with_sycl"])
def test_nothing_is_built_for_sycl(field: str) -> None:
    value = True if field == "with_sycl" else ["x"]
    assert refused(**{field: value}) == f"the field {field}, as it builds nothing for SYCL"


def test_a_field_that_nobody_has_judged_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(policies.REQUEST, "use_pch")
    assert refused() == "the field use_pch, which is unknown"


def test_every_field_has_its_rule() -> None:
    assert set(policies.REQUEST) == set(Request.__struct_fields__)
    assert set(policies.INTERPRETER) == set(Interpreter.__struct_fields__)


# ---------------------------------------------------------------------- the interpreter


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("executable", "python", "'python', which is not an absolute path"),
        ("abi", "a/b", "'a/b', which is not a suffix of files"),
        ("torch_dir", "torch", "'torch', which is not an absolute path"),
        ("torch_loaded", "2.12 x", "'2.12 x', which is not a version"),
    ],
)
def test_what_an_interpreter_may_not_be_called(field: str, value: str, said: str) -> None:
    asked = msgspec.structs.replace(PYTHON, **{field: value})
    assert refused(interpreter=asked) == f"the field {field} {said}"


def test_only_the_machines_interpreters_are_run() -> None:
    for field, value in (
        ("executable", "/tmp/python"),
        ("abi", ".so"),
        ("torch_dir", "/tmp/torch"),
    ):
        asked = msgspec.structs.replace(PYTHON, **{field: value})
        assert refused(interpreter=asked) == (
            f"Python {asked.executable} with torch in {asked.torch_dir}: not in `interpreters`"
        )
    assert refused(interpreter=msgspec.structs.replace(PYTHON, torch_loaded="2.12.0+cu129")) is None


def test_the_machines_own_name_of_an_interpreter_stands_in_a_request() -> None:
    asked = Interpreter("/opt/bin/../bin/python", PYTHON.abi, "/opt/./torch", "2.12.0")
    asked = msgspec.structs.replace(asked, executable=PYTHON.executable)
    taken = Policy(MACHINE).admit(request(interpreter=asked)).interpreter
    assert taken == msgspec.structs.replace(PYTHON, torch_loaded="2.12.0")


# ---------------------------------------------------------------------- variables

OURS = [
    "PATH", "HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "LANG", "LC_ALL", "LC_MESSAGES",
    "CCACHE_DIR",
    "CCACHE_CONFIGPATH", "CCACHE_DISABLE", "CCACHE_MAXSIZE", "CCACHE_REMOTE_STORAGE",
    "CCACHE_REMOTE_ONLY",
    "CCACHE_RESHARE", "CCACHE_READONLY", "CCACHE_TEMPDIR", "CCACHE_UMASK",
]  # fmt: skip
NOT_TAKEN = [
    "LD_LIBRARY_PATH", "LD_RUN_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH", "COMPILER_PATH",
    "GCC_EXEC_PREFIX", "SDKROOT", "CONDA_BUILD_SYSROOT", "PYTORCH_NVCC", "CUDA_INC_PATH",
    "CUDNN_HOME", "CUDNN_PATH",
    "ROCM_HOME", "ROCM_PATH", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "LD_PRELOAD",
    "SOMETHING_ELSE",
]  # fmt: skip
TAKEN = {  # with values that they may have, values that they may not have, and what that is called
    "CC": (["g++", "/usr/bin/g++"], ["", "/tmp/evil", "g++ "], None),
    "CXX": (["g++"], ["clang", "g++ -B/tmp"], None),
    "CUDA_HOME": (["/usr/local/cuda"], ["", "/tmp/cuda", "g++"], None),
    "CUDA_PATH": (["/usr/local/cuda"], ["/usr/local/cuda/"], None),
    "SOURCE_DATE_EPOCH": (["", "0", "1" * 18], ["now", "-1", "1" * 19, "²"], "a number"),
    "MAX_JOBS": (["2"], ["2;x", " 2", "2\n"], "a number"),
    "TORCH_CUDA_ARCH_LIST": (
        ["9.0", "8.0;9.0a+PTX", "Hopper Ada"], ["9.0\n", "$x", "9,0"], "a list of architectures",
    ),
    "PYTORCH_ROCM_ARCH": (["gfx90a:xnack-;gfx942+"], ["GFX", "a b"], "a list of architectures"),
    "TORCH_XPU_ARCH_LIST": (["pvc,xe-lpg_1"], ["PVC", "a;b"], "a list of architectures"),
    "CUDA_VISIBLE_DEVICES": (["", "0,1", "GPU-8a/1", "MIG-1"], ["0;1", "0 1"], "a list of devices"),
    "TORCH_DONT_CHECK_COMPILER_ABI": (["ON", "1", ""], ["a b", "-"], "a word"),
    "TORCH_EXTENSION_SKIP_NVCC_GEN_DEPENDENCIES": (["1"], ["a/b"], "a word"),
    "TORCH_NO_COMPILER_WRAPPER": (["1"], ["a=b"], "a word"),
    "TORCH_EXTENSIONS_DIR": (["/a", "/a b"], ["a", "", "/a\n"], "an absolute path"),
}  # fmt: skip


def test_every_variable_has_its_rule() -> None:
    unknown = {"LD_PRELOAD", "SOMETHING_ELSE"}
    assert set(policies.ENVIRONMENT) == {*OURS, *NOT_TAKEN, *TAKEN} - unknown


@pytest.mark.parametrize("name", OURS)
def test_a_variable_that_is_the_daemons_own(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's is not looked at; the daemon's stands in its place, if it has one."""
    monkeypatch.delenv(name, raising=False)
    asked = request(environment={name: "the caller's\n", "MAX_JOBS": "2"})
    of_the_machine = "/usr/bin:/bin" if name == "PATH" else None
    found = Policy(MACHINE).admit(asked).environment
    assert (found.get(name), found["MAX_JOBS"]) == (of_the_machine, "2")
    monkeypatch.setenv(name, "the daemon's")
    found = Policy(MACHINE).admit(asked).environment
    assert (found[name], found["MAX_JOBS"]) == (of_the_machine or "the daemon's", "2")


@pytest.mark.parametrize("name", NOT_TAKEN)
def test_a_variable_that_puts_something_in_a_compilers_place(name: str) -> None:
    said = "which puts something else in place of a compiler's own parts"
    assert refused(environment={"MAX_JOBS": "2", name: "/a"}) == f"the variable {name}, {said}"
    assert refused(environment={name: ""}) is None


def test_an_empty_variable_that_no_rule_names_is_left_out() -> None:
    asked = request(environment={"SOMETHING_ELSE": "", "MAX_JOBS": "2"})
    taken = Policy(MACHINE).admit(asked).environment
    assert "SOMETHING_ELSE" not in taken
    assert taken["MAX_JOBS"] == "2"


@pytest.mark.parametrize("name", TAKEN)
def test_a_variable_may_have_some_values(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad, form = TAKEN[name]
    monkeypatch.setenv(name, "the daemon's")
    for value in good:
        assert refused(environment={name: value}) is None, value
        assert Policy(MACHINE).admit(request(environment={name: value})).environment[name] == value
    assert name not in Policy(MACHINE).admit(request(environment={})).environment
    for value in bad:
        said = refused(environment={"PATH": "", name: value, "HOME": ""}) or ""
        assert said.startswith(f"the variable {name} {value!r}"), value
        assert form is None or said.endswith(f", which is not {form}")


def test_what_is_said_of_compilers_and_toolkits() -> None:
    told = refused(environment={"CXX": "x" * 300})
    assert told == f"the variable CXX {'x' * 200!r}: it is none of its compilers"
    told = refused(environment={"CUDA_HOME": "x" * 300})
    assert told == f"the variable CUDA_HOME {'x' * 200!r}: not a CUDA toolkit of this machine"


def test_a_request_that_is_taken_stays_as_it_is_otherwise() -> None:
    asked = request(extra_cflags=["-O2"], functions=["f"], build_directory="/a", verbose=True)
    taken = Policy(MACHINE).admit(asked)
    assert msgspec.structs.replace(taken, environment=asked.environment) == asked


def test_the_answer_says_what_to_do() -> None:
    assert policies.refusal("the flag -x") == Failed(
        0,
        "RequestError",
        "this machine's daemon is shared, and refuses the flag -x; leave it out, or set"
        " WARMCC_DISABLE=1 to have torch build it by itself",
    )
