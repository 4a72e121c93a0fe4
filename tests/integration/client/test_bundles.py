"""Bundles from end to end: made with a real daemon, and loaded where there is neither a daemon nor
a compiler.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import warmcc
from tests.support.bundling import Target, can_be_alone, edited, needs, packed, plain, script
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc.errors import BundleError


@pytest.fixture(autouse=True)
def _reaching(daemon: Daemon, fresh_client: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path / "target")


@pytest.mark.parametrize(
    "suffix",
    [
        ".tar.gz",
        *(pytest.param(one, marks=pytest.mark.slow) for one in (".tar.xz", ".tar.zst", ".tar")),
    ],
)
def test_it_loads_without_a_daemon_a_compiler_and_a_network(
    tmp_path: Path, target: Target, suffix: str
) -> None:
    bundle = packed(tmp_path, 11, "moved", suffix)
    missing = target.run("-c", script("moved", 11))
    assert "OfflineError: WARMCC_OFFLINE is set, and no unpacked bundle has 'moved'" in (
        missing.stderr
    )
    done = target.warmcc("unpack", str(bundle))
    assert done.returncode == 0, done.stderr
    loaded = target.run("-c", script("moved", 11), alone=can_be_alone())
    answer, path = loaded.stdout.split()
    assert (answer, loaded.stderr) == ("11", "")
    assert path.startswith(str(target.bundles)) and path.endswith("/moved.so")
    assert os.listdir(target.environment["WARMCC_RUNTIME_DIR"]) == []


@pytest.mark.slow
def test_several_results_of_one_name(tmp_path: Path, target: Target) -> None:
    """Each is found by its own source; a second one in one process has another module's name."""
    bundle = tmp_path / "two.tar.gz"
    warmcc.pack(bundle, [plain(1, "variant"), plain(2, "variant")])
    assert target.warmcc("unpack", str(bundle)).returncode == 0
    for answer in (1, 2):
        assert target.run("-c", script("variant", answer)).stdout.startswith(f"{answer} ")
    both = target.run("-c", script("variant", 1) + script("variant", 2))
    assert both.stdout.startswith("1 ") and "module_name (the bundle has variant, the call" in (
        both.stderr
    )


def test_a_source_of_files(tmp_path: Path, target: Target) -> None:
    """Other folders are fine, other contents are not."""
    for folder in ("there", "here"):
        (tmp_path / folder / "include").mkdir(parents=True)
        source = '#include "own.h"\n#include <value.h>\n' + module_source(0, "filed")
        source = source.replace("PyLong_FromLong(0)", "PyLong_FromLong(OWN + VALUE)")
        (tmp_path / folder / "filed.cpp").write_text(source)
        (tmp_path / folder / "own.h").write_text("#define OWN 40\n")
        (tmp_path / folder / "include/value.h").write_text("#define VALUE 2\n")
    there, here = tmp_path / "there", tmp_path / "here"
    built = warmcc.build(
        "filed", [there / "filed.cpp"], extra_include_paths=[str(there / "include")]
    )
    warmcc.pack(tmp_path / "filed.tar.gz", [built])
    shutil.rmtree(there)
    assert target.warmcc("unpack", str(tmp_path / "filed.tar.gz")).returncode == 0
    call = (
        f"import warmcc; print(warmcc.load('filed', [{str(here / 'filed.cpp')!r}], "
        f"extra_include_paths=[{str(here / 'include')!r}]).answer())"
    )
    assert target.run("-c", call).stdout == "42\n"
    (here / "include/value.h").write_text("#define VALUE 3\n")
    said = target.run("-c", call).stderr
    assert f"{here / 'include/value.h'} differs from the file that it was built with" in said
    (here / "include/value.h").write_text("#define VALUE 2\n")
    assert target.run("-c", call).stdout == "42\n"
    with open(here / "filed.cpp", "a") as file:
        file.write("\n")
    assert "differs in: sources" in target.run("-c", call).stderr


def test_the_nearest_is_named(tmp_path: Path, target: Target) -> None:
    assert target.warmcc("unpack", str(packed(tmp_path, 5, "near"))).returncode == 0
    said = target.run("-c", script("near", 5, ", extra_cflags=['-O2', '-DKEY=s3cret']")).stderr
    assert "differs in: extra_cflags (the bundle has none, the call ['-O2', '-DKEY=…'])" in said
    assert "1 bundles with near" in said
    assert "differs in: cpp_sources\n" in target.run("-c", script("near", 6)).stderr
    other = target.run("-c", script("other", 6)).stderr
    assert "The nearest is" not in other and "has 'other'" in other


MISMATCHES = [
    ({"torch": "1.0"}, "torch: it was built for 1.0, here is 2."),
    ({"abi": ".cpython-39-x86_64-linux-gnu.so"}, "Python: it was built for .cpython-39"),
    ({"symbols": {"GLIBC": "2.999"}}, "glibc: it needs 2.999, here is 2."),
    ({"machine": "aarch64"}, "machine: it was built for aarch64, here is"),
    ({"libraries": ["libwarmcc_none.so"]}, "library: libwarmcc_none.so: cannot open"),
]


ALL_IN_TURN = """
import os, traceback, warmcc, warnings
warnings.simplefilter("always")
for number in range({count}):
    os.environ["WARMCC_BUNDLES"] = f"{folder}/{{number}}"
    print("----")
    try:
        with warnings.catch_warnings(record=True) as caught:
            module = warmcc.load_inline({name!r}, {source!r}, no_implicit_headers=True)
        print(module.answer(), module.__file__, *(one.message for one in caught))
    except warmcc.OfflineError as error:
        print("OfflineError", error)
"""


def test_what_does_not_fit_is_refused(tmp_path: Path, target: Target, daemon: Daemon) -> None:
    """Offline with an error; else with a warning, and the daemon builds."""
    bundle = packed(tmp_path, 7, "unfit")
    for number, (changes, _) in enumerate(MISMATCHES):
        changed = edited(bundle, tmp_path / f"{number}.tar.gz", needs(**changes))
        warmcc.unpack(changed, tmp_path / "unfit" / str(number))
    program = ALL_IN_TURN.format(
        count=len(MISMATCHES), folder=tmp_path / "unfit", name="unfit",
        source=module_source(7, "unfit"),
    )  # fmt: skip
    offline = target.run("-c", program)
    known = {**daemon.environment, "PATH": os.environ["PATH"], "WARMCC_OFFLINE": "0"}
    online = target.run("-c", program, **known)
    for done in (offline, online):
        parts = done.stdout.split("----\n")[1:]
        assert len(parts) == len(MISMATCHES), done.stderr
        for part, (_, said) in zip(parts, MISMATCHES, strict=True):
            assert said in part
            if done is offline:
                assert part.startswith("OfflineError")
            else:
                assert part.startswith(f"7 {daemon.cache_dir}") and "It is built instead." in part


def test_offline_nothing_else_happens(tmp_path: Path, daemon: Daemon, target: Target) -> None:
    """Neither the daemon that runs nor stock torch is asked, whatever other variables say."""
    before = daemon.status()["requests"]["total"]
    more = {**daemon.environment, "PATH": os.environ["PATH"]}
    for variables in ({}, {"WARMCC_DISABLE": "1"}, {"WARMCC_FALLBACK": "1"}):
        done = target.run("-c", script("nothing", 1), **{**more, **variables})
        assert "OfflineError: WARMCC_OFFLINE is set, and no unpacked" in done.stderr, done
    unknown = target.run("-c", script("nothing", 1, ", brand_new=1"), **more)
    assert "no bundle can have this: unknown parameter brand_new" in unknown.stderr
    objects = target.run("-c", "import warmcc; warmcc.build_inline('x', 'int x;')", **more)
    assert "OfflineError" in objects.stderr
    installed = target.run("-m", "warmcc", "-c", script("nothing", 1), **more, WARMCC_DISABLE="1")
    assert "OfflineError" in installed.stderr
    started = target.warmcc("cache", "ls")
    assert "WARMCC_OFFLINE is set, so no daemon is started" in started.stderr
    assert daemon.status()["requests"]["total"] == before


def test_a_bundle_saves_the_daemon_a_request(
    tmp_path: Path, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Online too it is found first; what is in no bundle is built."""
    warmcc.unpack(packed(tmp_path, 8, "first"), tmp_path / "bundles")
    monkeypatch.setenv("WARMCC_BUNDLES", str(tmp_path / "bundles"))
    built, other = plain(8, "first"), plain(9, "first")
    assert built.path.startswith(str(tmp_path / "bundles")) and built.outcome == "hit"
    assert built.load().answer() == 8
    assert other.path.startswith(str(daemon.cache_dir)) and other.load().answer() == 9
    with pytest.raises(BundleError, match="'first' is from a bundle; copy that one"):
        warmcc.pack(tmp_path / "again.tar.gz", [built])


def test_what_is_unpacked_later_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARMCC_BUNDLES", str(tmp_path / "bundles"))
    one, two = packed(tmp_path, 1, "early"), packed(tmp_path, 2, "late")
    warmcc.unpack(one)
    assert "/bundles/" in plain(1, "early").path and "/bundles/" not in plain(2, "late").path
    warmcc.unpack(two)
    assert "/bundles/" in plain(2, "late").path
