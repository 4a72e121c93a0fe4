"""``warmcc analyze``, ``slim`` and ``top``, as people use them: real builds, a real daemon."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc.client.cli.analysis.slim import apply
from warmcc.client.slim.parts import Slimmed
from warmcc.client.slim.slim import Result
from warmcc.errors import RequestError

LIBRARY = """\
#include <ATen/core/Tensor.h>
// A list of sizes, without operators.
int64_t product(const std::vector<int64_t>& sizes) {
  TORCH_CHECK(!sizes.empty(), "no sizes");
  int64_t found = 1;
  for (auto size : sizes) found *= size;
  return found;
}
"""
INCLUDES_THROUGH = '#include "own.h"\nint f(const at::Tensor& x) { return x.dim(); }\n'


def warmcc(
    folder: Path, *words: str, daemon: Daemon | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **(daemon.environment if daemon else {}), **environment}
    return subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", *words], cwd=folder, env=variables,
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip


# ---------------------------------------------------------------------- top


def test_top_prints_once_without_a_terminal(daemon: Daemon, tmp_path: Path) -> None:
    done = warmcc(tmp_path, "top", daemon=daemon)
    assert done.returncode == 0, done.stderr
    assert f"process {daemon.pid}" in done.stdout and "\x1b" not in done.stdout
    data = json.loads(warmcc(tmp_path, "top", "--json", daemon=daemon).stdout)
    assert data["pid"] == daemon.pid and isinstance(data["processes"], list)
    assert all(one["words"] for one in data["processes"] if one["user"] > 0)


def test_top_without_a_daemon_says_how_to_start_one(tmp_path: Path) -> None:
    done = warmcc(tmp_path, "top")
    assert (done.returncode, done.stdout) == (3, "")
    assert "warmcc start" in done.stderr
    assert warmcc(tmp_path, "top", "--interval", "0").returncode == 2


def test_top_at_a_terminal_goes_on_until_it_is_interrupted(daemon: Daemon) -> None:
    master, slave = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "warmcc.client.cli", "top", "--interval", "0.1"],
        env={**os.environ, **daemon.environment, "TERM": "xterm"}, stdin=slave, stdout=slave,
        stderr=slave,
    )  # fmt: skip
    os.close(slave)
    shown, deadline = b"", time.monotonic() + 60
    while shown.count(f"process {daemon.pid}".encode()) < 3 and time.monotonic() < deadline:
        shown += os.read(master, 65536)
    child.send_signal(signal.SIGINT)
    assert child.wait(30) == 0
    os.close(master)
    assert shown.count(f"process {daemon.pid}".encode()) >= 3


# ---------------------------------------------------------------------- mistakes


@pytest.mark.parametrize("command", ["analyze", "slim"])
def test_a_file_that_is_missing_is_one_error(command: str, tmp_path: Path) -> None:
    done = warmcc(tmp_path, command, "not_there.cpp")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1 and "not_there.cpp" in done.stderr


def test_a_folder_without_torch_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text("#include <vector>\n")
    done = warmcc(tmp_path, "slim", ".")
    assert done.returncode == 2 and "no source in . includes torch" in done.stderr


@pytest.mark.slow
def test_sources_that_do_not_compile_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "bad.cpp").write_text("#include <c10/util/Exception.h>\nint f() { return x; }\n")
    done = warmcc(tmp_path, "analyze", "bad.cpp", "--html", "page.html")
    assert done.returncode == 1 and "was not declared" in done.stderr, done
    assert os.listdir(tmp_path) == ["bad.cpp"]
    done = warmcc(tmp_path, "slim", "bad.cpp", "--apply")
    assert done.returncode == 1 and "bad.cpp does not compile as it is" in done.stderr, done
    assert os.listdir(tmp_path) == ["bad.cpp"]


# ---------------------------------------------------------------------- analyze


@pytest.mark.slow
def test_analyze_accounts_for_stocks_build(tmp_path: Path) -> None:
    (tmp_path / "tiny.cpp").write_text(module_source())
    page, trace = tmp_path / "page.html", tmp_path / "trace.json"
    done = warmcc(
        tmp_path, "analyze", "tiny.cpp", "--json", "--html", str(page), "--chrome-trace", str(trace)
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    build = found["build"]
    assert build["accounted"] >= 0.95
    assert sum(one["end"] - one["start"] for one in build["phases"]) == pytest.approx(build["wall"])
    assert {one["output"] for one in build["steps"]} == {"tiny.o", "tiny.so"}
    names = {one["name"] for one in build["processes"]}
    assert {"ninja", "cc1plus"} <= names
    (unit,) = found["units"]
    assert {"Python", "standard library"} <= {one["owner"] for one in unit["headers"]}
    assert unit["phases"]["TOTAL"] > 0
    assert found["importing"]["opened"] > 100 and found["importing"]["looked"] > 100
    assert found["advice"]
    assert "cc1plus" in page.read_text()
    assert any(one["name"] == "cc1plus" for one in json.loads(trace.read_text())["traceEvents"])


@pytest.mark.slow
def test_analyze_shows_one_screen_with_warmccs_build_beside(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "besides.cpp").write_text(module_source(name="besides"))
    assert warmcc(tmp_path, "build", "besides.cpp", daemon=daemon).returncode == 0
    for words in (["besides.cpp"], ["besides"]):
        done = warmcc(tmp_path, "analyze", *words, daemon=daemon)
        assert done.returncode == 0, done.stderr
        assert "warmcc's last build of it" in done.stdout
        assert re.search(r"import torch +\d", done.stdout)
        assert "advice" in done.stdout and "\x1b" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 250


# ---------------------------------------------------------------------- slim


def slimmed(folder: Path, *words: str) -> dict[str, Any]:
    done = warmcc(folder, "slim", *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_slim_finds_the_few_headers_and_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "sizes.cpp"
    path.write_text(LIBRARY)
    (found,) = slimmed(tmp_path, "sizes.cpp", "--apply")["extensions"]
    (source,) = found["sources"]
    assert source["headers"] == ["c10/util/Exception.h", "vector"]
    assert found["gain"] > 1
    assert "#include <c10/util/Exception.h>" in path.read_text()
    assert path.read_text().endswith(LIBRARY.split("\n", 1)[1])
    patch = tmp_path / "sizes.cpp.slim.patch"
    assert patch.read_text() == source["diff"]
    subprocess.run(["patch", "-R", "-i", patch], cwd=tmp_path, check=True, capture_output=True)
    assert path.read_text() == LIBRARY


@pytest.mark.slow
def test_slim_says_why_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#include <ATen/core/Tensor.h>\n")
    (tmp_path / "through.cpp").write_text("#include <c10/util/Exception.h>\n" + INCLUDES_THROUGH)
    (found,) = slimmed(tmp_path, "through.cpp")["extensions"]
    assert '"own.h" includes torch itself' in found["sources"][0]["why_not"]
    assert found["gain"] is None and not found["sources"][0]["changed"]


@pytest.mark.slow
def test_slim_of_a_folder_counts_headers(tmp_path: Path) -> None:
    (tmp_path / "a.cpp").write_text(LIBRARY)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "b.cpp").write_text(LIBRARY.replace("product", "all_of_them"))
    (tmp_path / "other.cpp").write_text("int x;\n")
    done = warmcc(tmp_path, "slim", ".", "--no-measure")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^c10/util/Exception\.h +2$", done.stdout, re.M)
    assert done.stdout.count("+#include <c10/util/Exception.h>") == 2


@pytest.mark.slow
def test_slim_of_an_inline_source_names_the_flag(tmp_path: Path) -> None:
    text = "int64_t twice(int64_t x) { TORCH_CHECK(x > 0); return 2 * x; }\n"
    (tmp_path / "inline.cpp").write_text(text)
    (found,) = slimmed(tmp_path, "inline.cpp", "--functions", "twice", "--no-measure")["extensions"]
    assert found["no_implicit_headers"] is True
    assert found["sources"][0]["headers"] == ["torch/csrc/Exceptions.h"]


@pytest.mark.slow
def test_slim_keeps_line_ends_and_modes(tmp_path: Path) -> None:
    path = tmp_path / "sizes.cpp"
    path.write_bytes(LIBRARY.replace("\n", "\r\n").encode())
    path.chmod(0o640)
    done = warmcc(tmp_path, "slim", "sizes.cpp", "--apply", "--no-measure")
    assert done.returncode == 0, done.stderr
    written = path.read_bytes()
    assert b"#include <c10/util/Exception.h>\r\n" in written
    assert written.count(b"\r\n") == written.count(b"\n")
    assert path.stat().st_mode & 0o777 == 0o640


MODULE = """\
#include <torch/extension.h>
#include <cmath>

// Twice.
int64_t twice(int64_t x) {
  TORCH_CHECK(x > 0, "not positive");
  return 2 * x;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice); }
"""
NAMED = 'constexpr const char* NAME = "x";'
CALLS = """\
import sys
from torch.utils.cpp_extension import load
module = load("twice", sys.argv[1:])
print(module.twice(21))
"""


@pytest.mark.slow
def test_slim_splits_a_module_off(tmp_path: Path) -> None:
    path, beside = tmp_path / "twice.cpp", tmp_path / "twice_binding.cpp"
    path.write_text(MODULE)
    path.chmod(0o640)
    (found,) = slimmed(tmp_path, "twice.cpp", "--split", "--apply")["extensions"]
    functions, binding = found["sources"]
    assert (functions["headers"], functions["new"]) == (["c10/util/Exception.h"], False)
    assert (binding["headers"], binding["new"]) == (["torch/csrc/utils/pybind.h"], True)
    assert found["gain"] > 1 and not found["why_whole"]
    assert "PYBIND11" not in path.read_text() and "twice(int64_t x);" in beside.read_text()
    assert beside.stat().st_mode & 0o777 == 0o640
    # Both are all that there was
    variables = {**os.environ, "TORCH_EXTENSIONS_DIR": str(tmp_path / "built")}
    done = subprocess.run(
        [sys.executable, "-c", CALLS, path, beside], env=variables, capture_output=True, text=True
    )
    assert done.stdout.strip() == "42", done.stderr
    again = warmcc(tmp_path, "slim", "twice.cpp", "--split", "--no-measure")
    assert "twice stays one file: twice_binding.cpp exists" in again.stderr
    patch = tmp_path / "twice.cpp.slim.patch"
    subprocess.run(["patch", "-R", "-i", patch], cwd=tmp_path, check=True, capture_output=True)
    assert path.read_text() == MODULE and not beside.exists()


@pytest.mark.slow
def test_slim_says_why_a_source_stays_one_file(tmp_path: Path) -> None:
    path = tmp_path / "twice.cpp"
    path.write_text(MODULE.replace("int64_t twice", "static int64_t twice"))
    (found,) = slimmed(tmp_path, "twice.cpp", "--split", "--no-measure")["extensions"]
    assert found["why_whole"] == "its module binds twice, which is static"
    assert found["sources"][0]["changed"]  # fewer headers, all the same
    path.write_text(MODULE.replace("&twice", "&twice, py::arg(NAME)").replace("// Twice.", NAMED))
    (found,) = slimmed(tmp_path, "twice.cpp", "--split", "--no-measure")["extensions"]
    assert "in two units it does not compile" in found["why_whole"]
    assert not (tmp_path / "twice_binding.cpp").exists()
    done = warmcc(tmp_path, "slim", "twice.cpp", "--split", "--functions", "twice")
    assert done.returncode == 1 and "--split is for a file that binds itself" in done.stderr


@pytest.mark.parametrize("wrong", ["no room for the new file", "nor for the patch", "an edit"])
def test_what_cannot_be_written_leaves_the_source(tmp_path: Path, wrong: str) -> None:
    path, beside = tmp_path / "twice.cpp", tmp_path / "twice_binding.cpp"
    path.write_text(MODULE)
    if wrong == "no room for the new file":
        beside = tmp_path / ("x" * 300)
    elif wrong == "nor for the patch":
        (tmp_path / "twice.cpp.slim.patch").mkdir()
    else:
        path.write_text(MODULE + "// edited\n")
    before = path.read_text()
    sources = (
        Slimmed(str(path), "twice.cpp", MODULE, "int x;\n", ()),
        Slimmed(str(beside), "twice_binding.cpp", "", "int y;\n", ()),
    )
    with pytest.raises((OSError, RequestError)):
        apply(Result("twice", sources, None, False))
    assert path.read_text() == before
    assert {one.name for one in tmp_path.iterdir()} <= {"twice.cpp", "twice.cpp.slim.patch"}
