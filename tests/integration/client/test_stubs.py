"""Stubs of real extensions: what they say, what mypy makes of them, and what cannot be stubbed."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warmcc
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc.client.stubs import stub
from warmcc.errors import RequestError

KERNELS = """
// scaled(int wrong) is only mentioned
torch::Tensor scaled(const torch::Tensor& input, double factor) { return input * factor; }
std::vector<torch::Tensor> parts(torch::Tensor x, at::IntArrayRef sizes,
                                 std::optional<std::string> mode = {}) { return {x}; }
"""
OWN = r"""
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
namespace py = pybind11;
struct Hidden {};
struct Box { int size; explicit Box(int n) : size(n) {} };
struct Lid : Box { Lid() : Box(1) {} };
enum class Color { red, green };
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.doc() = "A module with \"\"\"quotes\"\"\" and \\ in its text.";
  py::class_<Box>(m, "Box", "A box.")
      .def(py::init<int>(), py::arg("n") = 3, "Makes it.")
      .def_readwrite("size", &Box::size, "How large.")
      .def("__eq__", [](const Box& a, const Box& b) { return a.size == b.size; })
      .def_static("of", [](int n) { return Box(n); }, py::arg("n"));
  py::class_<Lid, Box>(m, "Lid").def(py::init<>());
  py::enum_<Color>(m, "Color").value("red", Color::red).value("green", Color::green);
  m.def("twice", [](int n) { return 2 * n; }, py::arg("n"), "Of a number.");
  m.def("twice", [](const std::string& text) { return text + text; }, py::arg("text"));
  m.def("paint", [](const Box& box, Color color, std::string mode) { return box; }, py::arg("box"),
        py::arg("color") = Color::red, py::kw_only(), py::arg("mode") = "a, b");
  m.def("hide", [](Hidden* hidden, std::map<std::string, std::vector<double>> by) {
    return std::make_tuple(hidden, by);
  });
  m.def("list", [](std::vector<int64_t> x) { return x; }, py::arg("x"));
  m.def("from_", [](int n) { return n; }, py::arg("from"));
  m.def("a-b", [] {});
  m.def("lambda", [] {});
  m.attr("VERSION") = 3;
}
"""
WITHOUT_PYTHON = 'extern "C" int f() { return 42; }'


@pytest.fixture(autouse=True)
def _reaching(daemon: Daemon, fresh_client: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)


def command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", "stubs", *map(str, words)],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip


def checked(folder: Path, name: str, text: str, script: str) -> list[str]:
    """mypy's errors in a script that uses a stub, and in the stub."""
    ast.parse(text)
    (folder / f"{name}.pyi").write_text(text)
    (folder / "script.py").write_text(script)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--config-file=",
         f"{name}.pyi", "script.py"],
        cwd=folder, capture_output=True, text=True, timeout=280,
        env={**os.environ, "MYPY_CACHE_DIR": str(folder / "cache")},
    )  # fmt: skip
    assert not done.stderr
    return done.stdout.splitlines()


def kernels() -> warmcc.Artifact:
    return warmcc.build_inline("stubbed", KERNELS, functions={"scaled": "Scales.", "parts": ""})


@pytest.mark.slow
def test_functions_have_the_names_of_the_source(tmp_path: Path) -> None:
    text = kernels().stub()
    assert text == kernels().stub()
    assert "def scaled(input: torch.Tensor, factor: " in text and ", /) -> torch.Tensor:" in text
    assert '    """Scales."""\n' in text
    assert "def parts(x: torch.Tensor, sizes: list[int] | tuple[int, ...], mode: " in text
    script = (
        "import torch\nimport stubbed\n"
        "x: torch.Tensor = stubbed.scaled(torch.ones(2), 2.0)\n"
        "parts: list[torch.Tensor] = stubbed.parts(x, [1, 1], None)\n"
    )
    assert checked(tmp_path, "stubbed", text, script) == []
    script += "stubbed.scaled(2.0)\nstubbed.scaled(input=x, factor=2.0)\nstubbed.skaled(x, 2)\n"
    told = checked(tmp_path, "stubbed", text, script)
    assert [row.split(":")[1] for row in told if "error" in row][:1] == ["5"]
    assert {row.split(":")[1] for row in told if "error" in row} == {"5", "6", "7"}


@pytest.mark.slow
def test_the_command_writes_the_same(tmp_path: Path) -> None:
    text = kernels().stub()
    done = command("stubbed")
    assert (done.returncode, done.stdout, done.stderr) == (0, text, "")
    assert command("stubbed", "-o", tmp_path / "own.pyi").returncode == 0
    assert (tmp_path / "own.pyi").read_text() == text
    other = warmcc.build_inline("other", module_source(name="other"), no_implicit_headers=True)
    assert command("stubbed", other.path, "--to", tmp_path / "to").returncode == 0
    assert (tmp_path / "to/stubbed.pyi").read_text() == text
    assert "def answer(*args: typing.Any" in (tmp_path / "to/other.pyi").read_text()
    listed = subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", "cache", "ls"], capture_output=True, text=True
    ).stdout
    (key,) = [row.split()[-1] for row in listed.splitlines() if row.startswith("stubbed.so")]
    assert command(key).stdout == text
    assert not list(tmp_path.rglob(".warmcc-*"))


@pytest.mark.slow
def test_a_module_that_binds_by_itself(tmp_path: Path) -> None:
    built = warmcc.build_inline("own_module", OWN, no_implicit_headers=True)
    text = built.stub()
    for row in (
        "class Box:", "class Lid(Box):", "    red: typing.ClassVar[Color]", "VERSION: int",
        "# 'a-b': a name that only getattr can say", "# 'lambda': a name that only getattr can say",
        "# its parameters: from: ", "    def size(self) -> int:",
    ):  # fmt: skip
        assert row in text
    assert "def list(x: " in text and "-> builtins.list[int]" in text
    assert "# Hidden\ndef hide(arg0: typing.Any, arg1: " in text
    assert text.count("@typing.overload\ndef twice(") == 2 and "Of a number." in text
    script = (
        "import own_module\nfrom own_module import Box, Color, Lid\n"
        "box: Box = own_module.paint(Lid(), Color.green, mode='x')\n"
        "box = own_module.paint(Box.of(2))\nbox.size = 5\n"
        "four: int = own_module.twice(2)\ntext: str = own_module.twice('a')\n"
    )
    assert checked(tmp_path, "own_module", text, script) == []
    script += "own_module.paint(3)\nown_module.twice(None)\nBox(n='a')\nbox.weight\n"
    told = checked(tmp_path, "own_module", text, script)
    assert {row.split(":")[1] for row in told if "error" in row} == {"8", "9", "10", "11"}


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("std::abort();", "was ended by SIGABRT"),
        ("_exit(3);", "process ended with code 3"),
        ('std::fprintf(stderr, "last words"); *(volatile int*)8 = 1;', "SIGSEGV\nlast words"),
        ('PyErr_SetString(PyExc_ValueError, "no licence"); return nullptr;', "ValueError: no lic"),
        ('std::puts("{}"); std::fflush(stdout); raise(SIGKILL);', "SIGKILL\n{}"),
    ],
)
def test_a_module_that_cannot_be_imported(statement: str, why: str) -> None:
    source = module_source(name="crashes").replace(
        "{ return PyModule", f"{{ {statement} return PyModule"
    )
    source = f"#include <csignal>\n#include <cstdio>\n#include <cstdlib>\n{source}"
    built = warmcc.build_inline(
        "crashes", f"#include <unistd.h>\n{source}", no_implicit_headers=True
    )
    with pytest.raises(RequestError) as caught:
        built.stub()
    assert str(caught.value).startswith("'crashes' cannot be imported: ") and why in str(
        caught.value
    )
    done = command(built.path)
    assert done.returncode == 2 and done.stdout == "" and "Traceback" not in done.stderr


def test_a_module_that_does_not_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    source = module_source(name="hangs").replace("{ return PyModule", "{ pause(); return PyModule")
    built = warmcc.build_inline("hangs", f"#include <unistd.h>\n{source}", no_implicit_headers=True)
    monkeypatch.setattr(stub, "_SECONDS", 0.5)
    with pytest.raises(RequestError, match=r"importing 'hangs' took more than 0\.5 s"):
        built.stub()


def test_what_has_no_stub(tmp_path: Path) -> None:
    plain = warmcc.build_inline(
        "plain", WITHOUT_PYTHON, no_implicit_headers=True, is_python_module=False
    )
    with pytest.raises(RequestError, match=r"not built as a Python module: there is nothing to st"):
        plain.stub()
    done = command("plain")
    assert done.returncode == 2 and "is not the Python module 'plain'" in done.stderr
    empty = module_source(name="empty").replace('{"answer", answer, METH_NOARGS, ""}, ', "")
    with pytest.raises(RequestError, match="it defines nothing that Python could use"):
        warmcc.build_inline("empty", empty, no_implicit_headers=True).stub()
    copy = tmp_path / "my-kernels.so"
    copy.write_bytes(Path(plain.path).read_bytes())
    for words, why in {
        (copy,): "'my-kernels' is not an identifier: no import statement can name its stub",
        ("never_built",): "no extension in the store is called 'never_built'",
        ("0123456789ab",): "has a key that begins so: `warmcc cache ls` shows what is there",
        (tmp_path / "none.so",): "none.so is not a file",
        ("plain", "empty"): "say where they go, with --to FOLDER",
        (copy, "-o", "x.pyi", "--to", "x"): "not allowed with argument",
    }.items():
        done = command(*words)
        assert done.returncode == 2 and why in done.stderr and not done.stdout, done
        assert "Traceback" not in done.stderr


def test_where_it_cannot_be_written(tmp_path: Path) -> None:
    built = warmcc.build_inline("unwritten", module_source(name="unwritten"),
                                no_implicit_headers=True)  # fmt: skip
    (tmp_path / "file").touch()
    for words in (("-o", tmp_path / "none/x.pyi"), ("--to", tmp_path / "file"), ("-o", tmp_path)):
        done = command(built.path, *words)
        assert done.returncode == 2 and str(words[1]) in done.stderr
        assert "Traceback" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
