"""Packages of variants with a real daemon: what is built, loaded, kept, left out and refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import warmcc
from tests.support.bundling import Target
from tests.support.commands import warmcc as run_warmcc
from tests.support.daemons import Daemon
from tests.support.prebuilding import (
    GIVEN,
    SOURCE,
    answers,
    answers_of,
    compiled,
    imported,
    run,
    spec,
    wanted,
)
from warmcc.client.connection import session
from warmcc.client.prebuild.api import Progress
from warmcc.errors import DaemonUnavailable, PrebuildError

BROKEN = SOURCE.replace("{{stages}}", "({{stages}} + (int[{{stages}} - 2]){}[0])")  # not for 1


@pytest.fixture(autouse=True)
def _reaching(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    session.forget()
    yield
    session.forget()


def test_a_call_makes_a_package(daemon: Daemon, tmp_path: Path) -> None:
    """All variants live in one process, each with statics of its own."""
    space = warmcc.Space({"tile": [1, 2], "stages": [3, 4]}, ["tile * stages != 8"])
    seen: list[Progress] = []
    built = warmcc.prebuild("called", space, output=tmp_path, on_progress=seen.append, **GIVEN)
    assert (built.compiled, built.how, built.failed) == (3, {"miss": 3}, {})
    assert [(one.done, one.total, one.how) for one in seen] == [
        (done, 3, "miss") for done in (1, 2, 3)
    ]
    package = imported(tmp_path, "called")
    assert answers(package) == {
        "tile=1,stages=3": 103, "tile=1,stages=4": 104, "tile=2,stages=3": 203
    }  # fmt: skip
    assert package.run_config_2.module.answer() == package.run_config_2.function() == 203
    assert sorted(os.listdir(tmp_path)) == ["called"], "no draft is left"
    told = package.metadata
    assert told["toolchain"]["c++"][0] and told["made_by"] == f"warmcc {warmcc.__version__}"
    assert told["variants"][0]["seconds"] > 0 and told["variants"][0]["kernels"] == []
    again = warmcc.prebuild("called_again", space, output=tmp_path, **{**GIVEN, "entry": "other"})
    assert again.how == {"miss": 3}, "another package has other names of modules"
    with pytest.raises(ImportError, match="tile=1,stages=3 has no function 'other'; build"):
        imported(tmp_path, "called_again").run_config_0()
    assert warmcc.prebuild("called", space, output=tmp_path, **GIVEN).how == {"hit": 3}


def test_the_command(daemon: Daemon, tmp_path: Path) -> None:
    path = spec(tmp_path, "commanded", [1, 2], [1, 2])
    dry = run(daemon, path, "--dry-run", "--json", "-o", tmp_path / "out")
    planned = json.loads(dry.stdout)
    assert (planned["variants"], planned["done"], planned["space"]) == (4, 0, 4)
    assert not (tmp_path / "out").exists()
    done = run(daemon, path, "-o", tmp_path / "out", "--wheel")
    folder, wheel = done.stdout.split()
    assert folder == str(tmp_path / "out" / "commanded") and wheel.endswith(".whl")
    assert "4/4 miss" in done.stderr and "4 variants in " in done.stderr
    assert answers_of(tmp_path / "out", "commanded") == wanted([1, 2], [1, 2])
    again = run(daemon, path, "-o", tmp_path / "out", "--dry-run")
    assert "run_config_3  tile=2,stages=2" in again.stdout
    assert "the median of 4 builds of this package" in again.stderr
    assert max(compiled(daemon.state_dir, "commanded").values()) == 1


@pytest.mark.slow
def test_a_wheel_is_installed_into_a_fresh_folder(daemon: Daemon, tmp_path: Path) -> None:
    path = spec(tmp_path, "wheeled_variants", [5], [6])
    wheel = run(daemon, path, "-o", tmp_path / "out", "--wheel").stdout.split()[-1]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps",
            "--disable-pip-version-check", "--target", tmp_path / "fresh", wheel],
        check=True,
    )  # fmt: skip
    assert answers_of(tmp_path / "fresh", "wheeled_variants") == {"tile=5,stages=6": 506}


@pytest.mark.slow
def test_a_variant_that_does_not_build(daemon: Daemon, tmp_path: Path) -> None:
    path = spec(tmp_path, "broken", [1, 2], [1, 3], BROKEN)
    failed = run(daemon, path, "-o", tmp_path, code=1).stderr
    assert "variants failed to build" in failed and "variant 'tile=1,stages=1': " in failed
    assert "main.cpp" in failed or "cpp_sources[0]" in failed
    assert not (tmp_path / "broken").exists()
    done = run(daemon, path, "-o", tmp_path, "--keep-going", "--json", code=1)
    told = json.loads(done.stdout or done.stderr)
    assert sorted(told["failed"]) == ["tile=1,stages=1", "tile=2,stages=1"]
    assert answers_of(tmp_path, "broken") == wanted([1, 2], [3])
    assert max(compiled(daemon.state_dir, "broken").values()) == 1


def test_none_that_builds(tmp_path: Path) -> None:
    with pytest.raises(PrebuildError, match="2 of 2 variants failed to build, 0 are") as caught:
        warmcc.prebuild(
            "none", [{"n": 1}, {"n": 2}], output=tmp_path, cpp_sources="int {{n}};", entry="f",
            no_implicit_headers=True, keep_going=True,
        )  # fmt: skip
    assert sorted(caught.value.failures) == ["n=1", "n=2"]
    assert not (tmp_path / "none").exists()


def test_usage(daemon: Daemon, tmp_path: Path) -> None:
    path = spec(tmp_path, "used", [1], [1])
    path.write_text(path.read_text().replace("entry", "enrty"))
    assert "spec.toml: unknown key enrty; did you mean entry?" in run(daemon, path, code=2).stderr
    assert "none.toml cannot be read" in run(daemon, tmp_path / "none.toml", code=2).stderr
    path = spec(tmp_path, "used", [1], [1])
    assert "--jobs must be at least 1" in run(daemon, path, "--jobs", 0, code=2).stderr
    (tmp_path / "used").mkdir()
    assert "is no package of variants" in run(daemon, path, "-o", tmp_path, code=1).stderr
    (tmp_path / "file").write_text("")
    assert "file" in run(daemon, path, "-o", tmp_path / "file", code=1).stderr
    (tmp_path / "make.py").write_text("def executor():\n    return 3\n")
    words = ("--executor", f"{tmp_path}/make.py:executor")
    assert "returns int, and no Executor" in run(daemon, path, *words, code=2).stderr


def test_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path / "nothing"))
    with pytest.raises(DaemonUnavailable, match="not running"):
        warmcc.prebuild("gone", [{"tile": 1, "stages": 1}], output=tmp_path / "out", **GIVEN)
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.slow
def test_what_is_in_the_draft_is_not_built_again(
    daemon: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the daemon's store has lost it, too, as long as nothing that it depends on changed."""
    header = tmp_path / "part.h"
    header.write_text("#define PART 0\n")
    source = f'#include "part.h"\n{SOURCE}'.replace("{{tile}}", "(PART + {{tile}})")
    given = {**GIVEN, "cpp_sources": source, "extra_include_paths": [str(tmp_path)]}
    variants = warmcc.Space({"tile": [1], "stages": [1, 2, 3]})

    class Killed(BaseException):
        """As if the process ended here."""

    def kill(progress: Progress) -> None:
        if progress.done == 2:
            raise Killed

    def prebuild(**more: object) -> warmcc.Prebuilt:
        return warmcc.prebuild("drafted", variants, output=tmp_path, jobs=1, **given, **more)

    with pytest.raises(Killed):
        prebuild(on_progress=kill)
    objects = sorted((tmp_path / ".drafted.draft" / "objects").iterdir())
    assert len(objects) >= 2
    objects[0].write_bytes(b"damaged")
    built = prebuild()
    assert built.how.get("kept", 0) >= 1 and built.compiled <= 1
    assert answers_of(tmp_path, "drafted") == wanted([1], [1, 2, 3])
    with pytest.raises(Killed):
        prebuild(on_progress=kill)
    header.write_text("#define PART 4\n")
    assert prebuild().how == {"miss": 3}
    assert answers_of(tmp_path, "drafted") == {f"tile=1,stages={n}": 500 + n for n in (1, 2, 3)}


@pytest.mark.slow
def test_an_executor_of_processes(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "make.py").write_text(
        "from concurrent.futures import ProcessPoolExecutor\n"
        "from multiprocessing import get_context\n"
        "def executor(): return ProcessPoolExecutor(2, mp_context=get_context('spawn'))\n"
    )
    path = spec(tmp_path, "pooled", [1, 2], [1, 2])
    words = (path, "-o", tmp_path, "--json", "--executor", f"{tmp_path}/make.py:executor")
    assert json.loads(run(daemon, *words).stdout)["how"] == {"miss": 4}
    for how in ("hit", "kept"):
        done = run(daemon, *words, "--store", f"file://{tmp_path}/store")
        assert json.loads(done.stdout)["how"] == {how: 4}
    assert answers_of(tmp_path, "pooled") == wanted([1, 2], [1, 2])


@pytest.mark.slow
def test_a_package_on_a_machine_without_a_compiler(daemon: Daemon, tmp_path: Path) -> None:
    """Its copy; and its bundle, from which the same spec makes it there."""
    path = spec(tmp_path, "carried", [7, 8], [9])
    run(daemon, path, "-o", tmp_path)
    bundle = str(tmp_path / "carried.tar.gz")
    run_warmcc(daemon, "pack", bundle, str(tmp_path / "carried"))
    target = Target(tmp_path / "target")
    script = "import carried; print([one() for one in carried.variants.values()])"
    done = target.run("-c", script, PYTHONPATH=str(tmp_path))
    assert done.stdout == "[709, 809]\n", done.stderr
    assert target.warmcc("unpack", bundle).returncode == 0
    done = target.warmcc("prebuild", str(path), "-o", "there", "--json")
    assert json.loads(done.stdout)["how"] == {"hit": 2}, done.stderr
    done = target.run("-c", script, PYTHONPATH=str(target.home / "there"))
    assert done.stdout == "[709, 809]\n", done.stderr
    changed = spec(tmp_path, "carried", [7, 8], [9], SOURCE + "\n")
    done = target.warmcc("prebuild", str(changed), "-o", "other")
    assert "Other variants of this package are there: a variant's name depends" in done.stderr
    run(daemon, changed, "-o", tmp_path)
    metadata = tmp_path / "carried" / "metadata.json"
    metadata.write_text(metadata.read_text().replace('"artifact": "', '"artifact": "0'))
    said = run_warmcc(daemon, "pack", bundle, str(tmp_path / "carried"), code=3)
    assert "was built otherwise than the store's" in said
