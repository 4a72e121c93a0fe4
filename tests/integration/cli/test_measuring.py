"""``warmcc importtime``, ``warmcc bench call``, and the zygotes in ``warmcc status``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Daemon
from tests.support.zygotes import Zygotes


def run(
    folder: Path, *words: str, code: int = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", *words], env=variables or dict(os.environ),
        capture_output=True, text=True, cwd=folder, timeout=300,
    )  # fmt: skip
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr
    return done


def measured(folder: Path, *words: str, **variables: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(run(folder, *words, "--json", **variables).stdout)
    return data


# ---------------------------------------------------------------------- imports


def test_imports_without_a_zygote(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import json, decimal\n")
    words = ("importtime", "mine", "--no-zygote", "--repeat", "1")
    found = measured(tmp_path, *words, "--html", "a.html", "--svg", "a.svg")
    (mine,) = found["imports"]
    assert mine["name"] == "mine" and "decimal" in {one["name"] for one in mine["imports"]}
    assert found["zygote"] == {"why_none": "--no-zygote"}
    assert "<h1>import mine</h1>" in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
    shown = run(tmp_path, *words).stdout
    assert shown.startswith("import mine: ") and "\nPACKAGE" in shown and "\nMODULE" in shown


def test_wrong_calls_of_importtime_are_one_line(tmp_path: Path) -> None:
    for words, said in (
        (["nowhere_x"], "nowhere_x cannot be imported: ModuleNotFoundError"),
        (["a-b"], "'a-b' is not the name of a module"),
        (["json", "--repeat", "0"], "--repeat and --top take a number from 1 on"),
        (["json", "--html", "none/a.html"], "none/a.html cannot be written"),
        (["json", "--svg", str(tmp_path)], "cannot be written: it is a folder"),
    ):
        done = run(tmp_path, "importtime", "--no-zygote", *words, code=2)
        assert said in done.stderr and done.stdout == "" and done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def zygotes() -> Iterator[Zygotes]:
    """With one that has imported a part of what is asked for."""
    made = Zygotes()
    made.environment["WARMCC_RUN_TORCH"] = "json;decimal"
    try:
        made.start()
        yield made
    finally:
        made.close()


def test_what_a_zygote_saves_and_lacks_and_who_shows_it(zygotes: Zygotes, tmp_path: Path) -> None:
    """``warmcc status`` shows it without a daemon, too; the exit code says that there is none."""
    variables = {**zygotes.environment, "WARMCC_CACHE_DIR": str(tmp_path / "cache")}
    found = measured(
        zygotes.where, "importtime", "decimal", "csv", "--repeat", "1", **variables
    )["zygote"]  # fmt: skip
    assert "decimal" in found["modules"] and found["seconds"] > 0
    assert "csv" in [name for name, _ in found["missing"]]
    assert "decimal" not in [name for name, _ in found["missing"]]
    shown = run(zygotes.where, "status", code=3, **variables)
    assert "WARMCC RUN" in shown.stdout and "daemon is not running" in shown.stderr
    data = json.loads(run(zygotes.where, "status", "--json", code=3, **variables).stdout)
    assert [one["pid"] for one in data["runs"]] == zygotes.pids()


# ---------------------------------------------------------------------- calls


@pytest.mark.slow
def test_a_call_without_probes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def f(x, y, *, k=1):\n    return x + y * k\n")
    words = ("bench", "call", "mine.f", "rand(4, 4)", "ones(4, dtype=float32)", "k=2")
    found = measured(
        tmp_path, *words, "--no-probes", "--samples", "5", "--html", "a.html", "--svg", "a.svg"
    )
    rows = {row["name"]: row for row in found["rows"]}
    assert list(rows) == [
        "python", "allocation", "call", "call, no_grad", "call, inference_mode", "call, with grad",
    ]  # fmt: skip
    for row in rows.values():
        assert row["failure"] == "" and len(row["samples"]) == 5
        assert 0 < row["p5"] <= row["p50"] <= row["p95"] <= row["p99"]
    assert found["arguments"] == ["float32[4, 4] on cpu", "float32[4] on cpu", "2"]
    assert "mine.f(rand(4, 4)" in (tmp_path / "a.html").read_text()
    assert (tmp_path / "a.svg").read_text().startswith("<svg")


@pytest.mark.slow
def test_functions_that_fail_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import os\ndef no(x): raise ValueError('not that')\ndef dies(): os.kill(os.getpid(), 11)\n"
        "number = 3\ndef inplace(x): return x.add_(1)\n"
    )
    for words, said in (
        (["mine.no", "rand(3)"], "mine.no: ValueError: not that"),
        (["mine.dies"], "the process that called it was ended by signal 11"),
        (["mine.none"], "mine has no none"),
        (["mine.number"], "mine.number cannot be called: it is a int"),
        (["mine.no", "rand(-1)"], "torch refuses rand"),
    ):
        done = run(tmp_path, "bench", "call", "--no-probes", *words, code=2)
        assert said in done.stderr and done.stdout == ""
    found = measured(tmp_path, "bench", "call", "mine.inplace", "rand(3)", "--no-probes")
    (failed,) = [row for row in found["rows"] if row["failure"]]
    assert failed["name"] == "call, with grad" and "leaf Variable" in failed["failure"]


def test_wrong_calls_of_bench_call_are_one_line(tmp_path: Path) -> None:
    """Before torch is imported."""
    for words, said in (
        (["f"], "'f' is not written as MODULE.FUNCTION"),
        (["math.sqrt", "open('x')"], "'open' is not a function here"),
        (["math.sqrt", "1", "--samples", "1"], "--samples takes a number from 2 on"),
        (["math.sqrt", "1", "--svg", "none/a.svg"], "none/a.svg cannot be written"),
    ):
        done = run(tmp_path, "bench", "call", *words, code=2)
        assert said in done.stderr and done.stdout == "" and done.stderr.count("\n") == 1


@pytest.mark.slow
def test_bindings_and_an_extension_of_the_store(warm: Daemon, tmp_path: Path) -> None:
    """The empty functions are built, found again, and measured on the same arguments."""
    program = (
        "import warmcc; warmcc.load_inline('bench_call_ext', 'at::Tensor twice(at::Tensor x, double"
        " k, std::vector<int64_t> s, std::string n) { return x * 2 * k; }', functions=['twice'])"
    )
    variables = {**os.environ, **warm.environment}
    subprocess.run([sys.executable, "-c", program], env=variables, cwd=tmp_path, check=True)
    done = run(tmp_path, "bench", "call", "nowhere_x.f", code=2, **variables)
    assert "there is no module nowhere_x, and no such extension in the store" in done.stderr
    words = ("bench", "call", "bench_call_ext.twice", "rand(8)", "0.5", "[1, 2]", "'a'")
    found = measured(tmp_path, *words, "--samples", "5", **variables)
    rows = {row["name"]: row for row in found["rows"]}
    assert found["notes"] == []
    assert {"pybind11", "warmcc", "torch.ops", "dispatcher", "call"} <= set(rows)
    assert [row["failure"] for row in rows.values()] == [""] * len(rows)
