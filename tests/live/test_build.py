"""``warmcc build``: results, and diagnostics in the forms that editors read."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.daemons import Daemon

GOOD = "int number() { return 1; }\n"
BAD = "int number() {\n  return nothing;\n}\n"


@pytest.fixture
def folder(client: Daemon, tmp_path: Path) -> Path:
    (tmp_path / "kernel.cpp").write_text(GOOD)
    return tmp_path


def run(folder: Path, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warmcc.client.cli", "build", "kernel.cpp", *words]
    return subprocess.run(
        command, cwd=folder, input=stdin, capture_output=True, text=True, check=False
    )


def test_it_prints_where_the_extension_is(folder: Path) -> None:
    done = run(folder, "--functions", "number")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file()
    found = json.loads(run(folder, "--functions", "number", "--json").stdout)
    assert (found["path"], found["outcome"]) == (done.stdout.strip(), "hit")


@pytest.mark.slow
@pytest.mark.parametrize("unsaved", [False, True])
def test_diagnostics_for_editors(folder: Path, unsaved: bool) -> None:
    path = folder / "kernel.cpp"
    words, text = ["--functions", "number"], ""
    if unsaved:
        words, text = [*words, "--stdin", "--as", "kernel.cpp"], BAD
    else:
        path.write_text(BAD)
    done = run(folder, *words, "--diagnostics", "gcc", stdin=text)
    assert done.returncode == 1
    assert done.stdout.startswith(f"{path}:2:10: error: ") and done.stdout.count("\n") == 1
    (one,) = json.loads(run(folder, *words, "--diagnostics", "json", stdin=text).stdout)
    assert (one["file"], one["line"], one["column"], one["severity"]) == (str(path), 2, 10, "error")
    sarif = json.loads(run(folder, *words, "--diagnostics", "sarif", stdin=text).stdout)
    (result,) = sarif["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert (sarif["version"], result["level"]) == ("2.1.0", "error")
    assert place["artifactLocation"]["uri"] == path.as_uri() and place["region"] == {
        "startLine": 2,
        "startColumn": 10,
    }
    if unsaved:
        assert path.read_text() == GOOD
        assert run(folder, *words, "--diagnostics", "gcc", stdin=GOOD).stdout.strip() == ""


def test_compile_commands_that_are_something_else_are_left_alone(folder: Path) -> None:
    (folder / "compile_commands.json").write_text("{broken")
    done = run(folder, "--functions", "number", "--compile-commands")
    assert (
        done.returncode == 2 and "was not written" in done.stderr and "Traceback" not in done.stderr
    )
    assert (folder / "compile_commands.json").read_text() == "{broken"


def test_unsaved_text_of_one_source_of_several(folder: Path) -> None:
    (folder / "other.cpp").write_text("int other() { return 2; }\n")
    words = ["other.cpp", "--stdin", "--as", "kernel.cpp"]
    assert (
        run(folder, *words, stdin="int other();\nint number() { return other(); }\n").returncode
        == 0
    )
    done = run(folder, *words, "--diagnostics", "gcc", stdin=BAD)
    assert done.stdout.startswith(f"{folder}/kernel.cpp:2:10: error")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--stdin"], "--stdin and --as FILE go together"),
        (["--stdin", "--as", "elsewhere.cpp"], "not one of the sources"),
        (["missing.cpp"], "No such file"),
    ],
)
def test_wrong_words_are_one_clear_error(folder: Path, words: list[str], said: str) -> None:
    done = run(folder, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "Traceback" not in done.stderr
