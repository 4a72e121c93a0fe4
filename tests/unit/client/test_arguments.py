"""Calls become requests as stock reads them; what stock might read otherwise is left to stock."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

from warmcc.client.calls import arguments
from warmcc.client.calls.api import load, load_inline
from warmcc.client.calls.arguments import NotCarried
from warmcc.errors import RequestError
from warmcc.request import Request

FUNCTIONS = {"load": load, "load_inline": load_inline}


def given(call: str, *positional: Any, **named: Any) -> dict[str, Any]:
    """All arguments of a call, as the public function hands them on."""
    bound = inspect.signature(FUNCTIONS[call]).bind(*positional, **named)
    bound.apply_defaults()
    return {key: value for key, value in bound.arguments.items() if key != "newer"}


def request(call: str, *positional: Any, **named: Any) -> Request:
    return arguments.to_request(call, given(call, *positional, **named))


def stocks_parameters(function: str) -> list[tuple[str, Any]]:
    """Names and defaults in torch's own source, read without importing it."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    tree = ast.parse(
        (Path(spec.origin).parent / "utils/cpp_extension.py").read_text(encoding="utf-8")
    )
    (node,) = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == function]
    defaults = [inspect.Parameter.empty] * (len(node.args.args) - len(node.args.defaults))
    defaults += [ast.literal_eval(value) for value in node.args.defaults]
    return list(zip([argument.arg for argument in node.args.args], defaults, strict=True))


@pytest.mark.parametrize("call", sorted(FUNCTIONS))
def test_parameters_are_those_of_stock_in_their_order(call: str) -> None:
    parameters = list(inspect.signature(FUNCTIONS[call]).parameters.values())
    assert parameters.pop().kind is inspect.Parameter.VAR_KEYWORD
    ours = [(parameter.name, parameter.default) for parameter in parameters]
    assert [pair for pair in stocks_parameters(call) if pair[0] != "gil_not_used"] == ours


def test_texts_become_lists_and_falsy_values_nothing() -> None:
    found = request(
        "load_inline", "x", "text", cuda_sources="", sycl_sources=(), functions="f", extra_cflags=()
    )
    assert (found.cpp_sources, found.cuda_sources, found.sycl_sources) == (["text"], [], [])
    assert (found.functions, found.extra_cflags, found.extra_ldflags) == (["f"], [], [])
    assert (found.name, found.module_name, found.call) == ("x", "x", "load_inline")


def test_flags_have_no_white_space_at_their_ends_as_in_stock() -> None:
    found = request(
        "load_inline", "x", "", extra_cflags=["-g\n\n", " -I a "], extra_cuda_cflags=("\t-O3\n",),
        extra_ldflags=["-lm\r\n"], extra_include_paths=["/a\n"],
    )  # fmt: skip
    assert (found.extra_cflags, found.extra_cuda_cflags) == (["-g", "-I a"], ["-O3"])
    assert (found.extra_ldflags, found.extra_include_paths) == (["-lm"], ["/a"])


@pytest.mark.parametrize("value", [1, "yes", [0]])
def test_truth_is_stocks(value: Any) -> None:
    found = request(
        "load_inline",
        "x",
        "",
        verbose=value,
        with_cuda=value,
        is_python_module=value,
        use_pch=value,
    )
    assert (found.verbose, found.with_cuda, found.is_python_module) == (True, True, True)
    assert found.use_pch is False  # stock asks `use_pch is True`
    assert request("load_inline", "x", "", use_pch=True).use_pch is True
    assert request("load_inline", "x", "", with_cuda=0).with_cuda is False


def test_docstrings_are_formatted_as_stock_does() -> None:
    assert request("load_inline", "x", "", functions={"f": None, "g": 3}).functions == {
        "f": "None",
        "g": "3",
    }


def test_relative_paths_are_relative_to_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = request(
        "load",
        "x",
        ["a.cpp", Path("b/../c.cpp")],
        extra_include_paths=[" include "],
        build_directory=Path("out"),
    )
    assert found.sources == [f"{tmp_path}/a.cpp", f"{tmp_path}/c.cpp"]
    assert found.extra_include_paths == [f"{tmp_path}/include"]
    assert found.build_directory == f"{tmp_path}/out"
    assert request("load", "x", ("a.cpp",)).sources == [f"{tmp_path}/a.cpp"]
    assert request("load", "x", "a.cpp", build_directory="").build_directory is None


def test_only_variables_that_matter_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "my-g++")
    monkeypatch.setenv("MAX_JOBS", "3")
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    environment = request("load_inline", "x", "").environment
    assert (environment["CXX"], environment["MAX_JOBS"]) == ("my-g++", "3")
    assert "SECRET_TOKEN" not in environment


def test_the_interpreter_is_described_without_importing_torch() -> None:
    found = request("load_inline", "x", "").interpreter
    assert os.access(found.executable, os.X_OK)
    assert Path(found.torch_dir, "__init__.py").is_file()
    assert found.abi.endswith(".so")


@pytest.mark.parametrize(
    "named",
    [
        {"cpp_sources": ("int x;",)}, {"cpp_sources": [b"int x;"]}, {"cpp_sources": None},
        {"cpp_sources": 3}, {"functions": ("f",)}, {"functions": {1: "f"}}, {"functions": [1]},
        {"extra_cflags": "-O3"}, {"extra_cflags": [Path("x")]}, {"extra_ldflags": ("-lm",)},
        {"extra_include_paths": [Path("include")]}, {"extra_include_paths": "include"},
        {"build_directory": b"out"}, {"build_directory": 3}, {"name": None}, {"name": Path("x")},
        {"name": "a\0b"}, {"name": "n" * 201}, {"name": "é" * 101}, {"cuda_sources": 3},
    ],
)  # fmt: skip
def test_what_the_protocol_has_no_place_for(named: dict[str, Any]) -> None:
    with pytest.raises(NotCarried):
        request("load_inline", **{"name": "x", "cpp_sources": "", **named})


@pytest.mark.parametrize("sources", [None, 3, Path("a.cpp"), [b"a.cpp"], [3], {"a.cpp"}])
def test_sources_that_are_stocks_to_judge(sources: Any) -> None:
    with pytest.raises(NotCarried):
        request("load", "x", sources)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/abs", "a b", "a\nb", "\ta", "a\u00a0b"])
def test_names_that_name_no_extension(name: str) -> None:
    with pytest.raises(RequestError, match="invalid extension name"):
        request("load_inline", name, "")


@pytest.mark.parametrize("name", ["x", "my-ext", "a.b", "größe", "1st", "n" * 200])
def test_names_that_are_the_compilers_to_judge(name: str) -> None:
    assert request("load_inline", name, "").name == name


def test_without_defaults_keeps_what_was_said() -> None:
    said = given("load_inline", "x", "", with_cuda=False, functions=["f"]) | {"newer": 1}
    assert arguments.without_defaults(load_inline, said) == {
        "name": "x", "cpp_sources": "", "with_cuda": False, "functions": ["f"], "newer": 1
    }  # fmt: skip


def test_the_callers_lists_stay_their_own() -> None:
    sources, flags = ["int x;"], ["-O1"]
    found = request("load_inline", "x", sources, extra_cflags=flags)
    found.cpp_sources.append("more")
    found.extra_cflags.append("-O2")
    assert (sources, flags) == (["int x;"], ["-O1"])


# --------------------------------------------------------------------- what stock finds out at once


def check(call: str, *positional: Any, **named: Any) -> None:
    said = given(call, *positional, **named)
    arguments.check(arguments.to_request(call, said), said, named.get("build_directory"))


def test_module_and_program_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="mutually exclusive"):
        check("load", "x", [str(tmp_path / "missing.cpp")], is_standalone=True)


def test_sources_are_opened_under_the_callers_name_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("there.cpp").write_text("")
    check("load", "x", "there.cpp")
    with pytest.raises(FileNotFoundError) as caught:
        check("load", "x", ["there.cpp", "gone.cpp"])
    assert caught.value.filename == "gone.cpp"
    with pytest.raises(FileNotFoundError):
        check("load", "x", "")
    with pytest.raises(IsADirectoryError):
        check("load", "x", [str(tmp_path)])


def test_the_build_directory_must_be_there(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check("load_inline", "x", "", build_directory=str(tmp_path))
    with pytest.raises(FileNotFoundError):
        check("load_inline", "x", "", build_directory=str(tmp_path / "gone"))
    with pytest.raises(NotADirectoryError):
        check("load_inline", "x", "", build_directory=str(tmp_path / "file"))


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
def test_the_build_directory_must_be_writable(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError):
        check("load_inline", "x", "", build_directory=str(tmp_path))
