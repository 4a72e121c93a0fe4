"""torch's ``_write_ninja_file_and_build_library`` under ``install()``, as slangtorch calls it: it
builds one name into one folder and loads nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.client.test_install import folder, good, requests, run
from tests.support.daemons import Daemon

__all__ = ["folder"]

# ``build(name=…, …)`` with whatever parameters this torch has; ``answer()`` in a new process.
BUILD = """
    import inspect, os, subprocess, sys, time, warmcc
    from torch.utils import cpp_extension
    from torch.utils.cpp_extension import _write_ninja_file_and_build_library as torchs
    warmcc.install()
    from torch.utils.cpp_extension import _write_ninja_file_and_build_library

    def build(**more):
        given = dict(name="files", sources=["tiny.cpp"], build_directory="out", verbose=False,
                     extra_cflags=["-DADDED=1"], with_cuda=None) | more
        names = inspect.signature(torchs).parameters
        return _write_ninja_file_and_build_library(**{
            name: given.get(name) for name, one in names.items()
            if name in given or one.default is one.empty})

    def answer():
        script = "import torch, files; print(files.answer())"
        done = subprocess.run([sys.executable, "-c", script], cwd="out", check=True,
                              env={**os.environ, "PYTHONPATH": "."}, capture_output=True)
        return int(done.stdout)
"""


def test_it_builds_under_the_name_that_it_is_given(daemon: Daemon, folder: Path) -> None:
    """Also another source after the first, in one process: nothing is loaded, so the name stays."""
    before = requests(daemon)
    script = f"""{BUILD}
    assert build() is None and "files" not in sys.modules
    assert answer() == 7 and os.listdir("out") == ["files.so"]
    source = open("tiny.cpp").read().replace("7", "8")
    open("tiny.cpp", "w").write(source)
    build()
    assert answer() == 8 and os.listdir("out") == ["files.so"]
    warmcc.uninstall()
    assert cpp_extension._write_ninja_file_and_build_library is torchs
    """
    good(run(daemon, folder, script))
    assert requests(daemon) == before + 2


def test_the_result_is_newer_than_its_sources(daemon: Daemon, folder: Path) -> None:
    """By that packages tell whether they have to call; a result that is current is left alone."""
    script = f"""{BUILD}
    build()
    first = os.stat("out/files.so")
    build()
    assert os.stat("out/files.so").st_mtime_ns == first.st_mtime_ns
    later = time.time_ns() - 10**7
    os.utime("tiny.cpp", ns=(later, later))
    build()
    assert os.stat("out/files.so").st_mtime_ns >= later
    os.utime("out/files.so", ns=(later + 1, later + 1))
    with open("out/files.so", "r+b") as file:
        file.write(b"damaged")
    build()
    assert answer() == 7
    """
    good(run(daemon, folder, script))


def test_mistakes_are_errors_as_torchs(daemon: Daemon, folder: Path) -> None:
    (folder / "wrong.cpp").write_text("int f() { return missing_name; }\n")
    script = f"""{BUILD}
    try:
        build(sources=["wrong.cpp"])
    except RuntimeError as error:
        assert str(error).startswith("Error building extension 'files'"), error
        assert "missing_name" in str(error)
    else:
        raise AssertionError
    assert not os.path.exists("out/files.so")
    """
    good(run(daemon, folder, script))


@pytest.mark.parametrize("variable", ["WARMCC_DISABLE", "WARMCC_AUTOSTART"])
def test_torch_builds_where_the_daemon_does_not(folder: Path, variable: str) -> None:
    script = f"""{BUILD}
    build()
    assert answer() == 7
    assert os.path.exists("out/build.ninja") and os.path.exists("out/tiny.o")
    """
    value = "1" if variable == "WARMCC_DISABLE" else "0"
    good(run(None, folder, script, **{variable: value}))


def test_a_source_that_is_not_there_is_torchs_to_report(daemon: Daemon, folder: Path) -> None:
    script = f"""{BUILD}
    try:
        build(sources=["absent.cpp"])
    except RuntimeError as error:
        assert "Error building extension 'files'" in str(error)
        assert "absent.cpp" in str(error.__cause__) + str(error)
    else:
        raise AssertionError
    """
    good(run(daemon, folder, script, WARMCC_FALLBACK="1"))
    reasons = daemon.status()["requests"]["fallbacks"]
    assert any("a source that is not there" in reason for reason in reasons), reasons
