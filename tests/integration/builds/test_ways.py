"""The ways of a build on a real compiler: which is taken, what follows a failure, and what may be
reused.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support.calls import Connection, load, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built, Failed

ADD = "torch::Tensor add(torch::Tensor a, double b) {{ return a + b + {number}; }}\n"


@pytest.fixture
def connection(warm: Daemon, context: zmq.Context[zmq.Socket[bytes]]) -> Connection:
    return Connection(warm, context)


def inline(source: str, **more: Any) -> Any:
    return request(cpp_sources=[source], no_implicit_headers=False, **more)


def way(answer: Any) -> str:
    assert isinstance(answer, Built), answer
    return answer.way.split(" way")[0]


def test_functions_of_tensors_go_the_lean_way(connection: Connection) -> None:
    answer = connection.build(inline(ADD.format(number=1), functions=["add"]))
    assert way(answer) == "lean"


HEADS = {
    "stock's header": ("#include <torch/extension.h>\n#include <vector>\n", True),
    "behind a comment": ("// mine\n#include <torch/extension.h>\n", True),
    "behind another": ("#include <vector>\n#include <torch/extension.h>\n", False),
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if HEADS[n][1] else pytest.mark.slow) for n in HEADS]
)
def test_a_source_that_begins_with_stocks_header_is_as_if_stock_had_put_it_there(
    connection: Connection, name: str
) -> None:
    import torch

    head, lean = HEADS[name]
    module = f"chosen_{list(HEADS).index(name)}"
    source = head + ADD.format(number=40)
    call = {"functions": ["add"], "name": module, "module_name": module}
    answer = connection.build(request(cpp_sources=[source], no_implicit_headers=True, **call))
    assert (way(answer) == "lean") == lean
    assert load(answer, module).add(torch.ones(1), 1.0).item() == 42


@pytest.mark.alone
def test_an_edit_reuses_the_binding(warm: Daemon, connection: Connection) -> None:
    connection.build(inline(ADD.format(number=2), functions=["add"]))
    before = warm.status()
    answer = connection.build(
        inline(ADD.format(number=3), functions=["add"], name="other", module_name="other")
    )
    after = warm.status()
    assert way(answer) == "lean"
    assert after["compiles"] - before["compiles"] == 1
    assert after["units_reused"] - before["units_reused"] == 2, "the binding's and the casters'"


@pytest.mark.slow
@pytest.mark.alone
def test_what_the_lean_prelude_lacks_is_found_behind_the_whole_and_remembered(
    warm: Daemon, connection: Connection
) -> None:
    source = (
        "torch::Tensor f(torch::Tensor a) {{ using namespace torch::nn; return Linear({n}, "
        "2)->forward(a); }}\n"
    )
    source = source.replace("torch::nn;", "torch; using namespace nn;")
    answers = [connection.build(inline(source.format(n=n), functions=["f"])) for n in (3, 4)]
    assert [way(answer) for answer in answers] == ["direct", "direct"]
    assert warm.status()["accelerators"]["ways"]["fallbacks"]["lean: did not compile"] == 1
    assert "not found behind the lean prelude" in answers[1].way


@pytest.mark.slow
def test_a_users_error_is_told_once_and_in_the_users_lines(connection: Connection) -> None:
    answer = connection.build(
        inline(
            "\n\ntorch::Tensor f(torch::Tensor a) { return undeclared_thing; }\n", functions=["f"]
        )
    )
    assert isinstance(answer, Failed)
    errors = [(one.file, one.line) for one in answer.diagnostics if one.severity == "error"]
    assert errors == [("cpp_sources[0]", 3)]
    assert answer.message.count("undeclared_thing") <= 3


DECLINED: dict[str, tuple[str, str]] = {
    "overloaded": (
        "int f(int a) { return a; }\ndouble f(double a) { return a; }\n",
        "is overloaded",
    ),
    "template": ("template <class T> T f(T a) { return a; }\n", "is not covered"),
    "user's class": ("struct S {};\nint f(S* s) { return 1; }\n", "is not covered"),
    "nested": (
        "namespace n { int f(int a) { return a; } }\nusing n::f;\n",
        "is not declared at the top level",
    ),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name == "nested" else pytest.mark.slow) for name in DECLINED],
)
def test_what_is_not_understood_is_bound_by_pybind11(connection: Connection, name: str) -> None:
    source, reason = DECLINED[name]
    answer = connection.build(inline(source, functions=["f"]))
    if isinstance(answer, Built):
        assert reason in answer.way


@pytest.mark.slow
@pytest.mark.alone
def test_a_wrong_reading_is_caught_by_the_compiler(warm: Daemon, connection: Connection) -> None:
    """``Tensor`` is read as torch's; here it is the user's, and stock compiles it."""
    source = "using Tensor = int;\nnamespace at { }\nTensor f(Tensor a) { return a + 1; }\n"
    before = warm.status()["accelerators"]["ways"]["fallbacks"].get(
        "direct: the binding did not compile", 0
    )
    answer = connection.build(inline(source, functions=["f"], name="wrong", module_name="wrong"))
    assert way(answer) == "stock"
    assert load(answer, "wrong").f(2) == 3
    assert (
        warm.status()["accelerators"]["ways"]["fallbacks"]["direct: the binding did not compile"]
        == before + 1
    )


def test_names_and_documentation_reach_the_module(connection: Connection) -> None:
    source = ADD.format(number=0) + "static int twice(int a) { return 2 * a; }\n"
    functions = {"add": "Adds. It's \u00fcnicode??/.", "twice": ""}
    answer = connection.build(inline(source, functions=functions, name="ours", module_name="ours"))
    assert way(answer) == "lean"
    module = load(answer, "ours")
    assert module.__name__ == "ours"
    assert functions["add"] in module.add.__doc__
    assert (module.add.__name__, module.add.__module__, module.twice(4)) == ("add", "ours", 8)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        module.twice("4")


@pytest.mark.slow
def test_a_torch_extension_header_of_the_users_own_is_stocks(
    connection: Connection, tmp_path: Path
) -> None:
    """Also when it appears after the same request was built behind the lean prelude that stands for
    torch's.
    """
    wanted = inline("int which() { return sizeof(which_t); }\n",
                    functions=["which"], name="which", module_name="which",
                    extra_include_paths=[str(tmp_path)],
                    extra_cflags=["-Dwhich_t=char"])  # fmt: skip
    first = connection.build(wanted)
    assert way(first) == "lean"
    (tmp_path / "torch").mkdir()
    text = "#include_next <torch/extension.h>\n#undef which_t\n#define which_t int\n"
    (tmp_path / "torch" / "extension.h").write_text(text)
    second = connection.build(wanted)
    assert isinstance(second, Built)
    assert second.outcome == "miss"
    assert "torch/extension.h is not torch's" in second.way
    assert load(second, "which").which() == 4


@pytest.mark.slow
def test_what_is_included_in_front_of_everything_stays_there(
    connection: Connection, tmp_path: Path
) -> None:
    (tmp_path / "front.h").write_text(
        "static int front = 3;\n"
    )  # without a guard: it may be read only once
    answer = connection.build(
        inline("int f() { return front; }\n", functions=["f"], name="front", module_name="front",
               extra_cflags=["-include", str(tmp_path / "front.h")])
    )  # fmt: skip
    assert load(answer, "front").f() == 3


BEHIND_TEXT = "not there yet: behind the text of its headers"


def behind_text(daemon: Daemon) -> int:
    found: int = daemon.status()["accelerators"]["pch"]["fallbacks"].get(BEHIND_TEXT, 0)
    return found


@pytest.mark.slow
@pytest.mark.alone
def test_flags_seen_for_the_first_time(warm: Daemon, connection: Connection) -> None:
    """The user's unit is compiled behind the text of lean headers; what warmcc wrote is there."""
    import torch

    connection.build(inline(ADD.format(number=60), functions=["add"]))
    before, behind = warm.status(), behind_text(warm)
    call = {"functions": ["add"], "name": "sight", "module_name": "sight"}
    flags = ["-march=native", "-fopenmp"]
    answer = connection.build(inline(ADD.format(number=61), extra_cflags=flags, **call))
    after = warm.status()
    assert way(answer) == "lean"
    assert behind_text(warm) == behind + 1
    assert after["compiles"] - before["compiles"] == 1
    assert after["units_reused"] - before["units_reused"] == 2, "the binding's and the casters'"
    assert load(answer, "sight").add(torch.ones(1), 1.0).item() == 63


@pytest.mark.slow
@pytest.mark.alone
def test_a_mistake_under_new_flags_is_compiled_once(warm: Daemon, connection: Connection) -> None:
    source = ADD.format(number=62) + "torch::Tensor wrong() { return torch::ones({1}) + missing; }"
    before, behind = warm.status(), behind_text(warm)
    answer = connection.build(
        inline(source, functions=["add"], extra_cflags=["-fno-trapping-math", "-g"])
    )
    assert isinstance(answer, Failed)
    told = [(one.file, one.line, one.severity) for one in answer.diagnostics]
    assert ("cpp_sources[0]", 2, "error") in told
    assert answer.message.count("was not declared in this scope") == 1
    assert "-fsyntax-only" not in answer.message
    assert behind_text(warm) == behind + 1
    assert warm.status()["compiles"] == before["compiles"], "no object was made"


def test_a_precompiled_header_of_stocks_is_not_made(connection: Connection) -> None:
    """Not in torch's folder, which is not warmcc's to write to."""
    source = ADD.format(number=4711)
    folder = Path(request().interpreter.torch_dir, "include/torch")
    before = sorted(folder.iterdir()), folder.stat().st_mtime_ns
    answer = connection.build(inline(source, functions=["add"], use_pch=True))
    assert isinstance(answer, Built) and answer.outcome == "miss"
    assert (sorted(folder.iterdir()), folder.stat().st_mtime_ns) == before


@pytest.mark.slow
@pytest.mark.alone
def test_a_function_that_may_fuse_arithmetic_has_no_precompiled_headers(
    warm: Daemon, connection: Connection
) -> None:
    """Where g++ optimises: what it inlines behind a finished one could round otherwise."""
    fused = '__attribute__((target_clones("default", "arch=haswell"))) ' + ADD.format(number=60)
    reason = "a target or optimize attribute lets g++ fuse or regroup arithmetic"
    for flags, times in ((["-O1"], 1), ([], 0)):
        before = warm.status()["unmatched"].get(reason, 0)
        call = {
            "functions": ["add"],
            "extra_cflags": flags,
            "name": "fuses",
            "module_name": "fuses",
        }
        assert isinstance(connection.build(inline(fused, **call), 300), Built)
        assert warm.status()["unmatched"].get(reason, 0) - before == times


@pytest.mark.slow
@pytest.mark.alone
def test_units_of_warmccs_serve_calls_with_any_macros(warm: Daemon, connection: Connection) -> None:
    """But for those that a header mentions."""
    import torch

    mentioned = "-DPYBIND11_DETAILED_ERROR_MESSAGES"
    source = ADD.replace("{number}", "NUMBER_OF_MINE")
    connection.build(inline(ADD.format(number=70), functions=["add"]))
    for flags, compiled in (
        (["-DNUMBER_OF_MINE=71"], 1), (["-DNUMBER_OF_MINE=72"], 1),
        (["-DNUMBER_OF_MINE=73", mentioned], 3),
    ):  # fmt: skip
        before = warm.status()["compiles"]
        answer = connection.build(
            inline(source.replace("{{", "{").replace("}}", "}"), functions=["add"],
                   extra_cflags=flags), 300)  # fmt: skip
        assert warm.status()["compiles"] - before == compiled, flags
        number = int(flags[0].partition("=")[2])
        add = load(answer, "tiny").add
        assert add(torch.ones(1), 0.0).item() == 1 + number
        with pytest.raises(TypeError, match="incompatible function arguments"):
            add("x", 0.0)
