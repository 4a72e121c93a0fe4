"""The plugin for g++ with a real compiler: what it sorts makes a header that is as good."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.calls import interpreter, request
from warmcc.daemon.pch.pch import Finish
from warmcc.daemon.pch.plugin import Plugins
from warmcc.daemon.plan import requested
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain import Toolchain
from warmcc.daemon.toolchain.identity import Toolchains

SORT = "-fplugin-arg-finish-sort"
HEADER = "#include <map>\n#include <string>\n#include <vector>\n"
UNIT = """\
int main() {
  std::map<std::string, std::vector<int>> found{{"a", {1, 2}}, {"b", {3}}};
  return found.at("b")[0] == 3 && found.size() == 2 ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def toolchain() -> Toolchain:
    environment = requested.build_environment(request())
    return asyncio.run(Toolchains().identify(environment, "c++", interpreter()))


@pytest.fixture(scope="module")
def finish(tmp_path_factory: pytest.TempPathFactory, toolchain: Toolchain) -> Finish:
    with contextlib.closing(Runner()) as runner:
        plugins = Plugins(tmp_path_factory.mktemp("plugins"), runner)
        found = asyncio.run(plugins.finish(toolchain, []))
    assert found is not None
    assert plugins.reasons == {}
    return found


def run(folder: Path, *words: str, before: Callable[[], None] | None = None) -> str:
    done = subprocess.run(
        words, cwd=folder, text=True, capture_output=True, check=False, preexec_fn=before
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


def no_new_code() -> None:
    """From now on no memory that was writable can be executed (Linux 6.3)."""
    if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0) != 0:
        raise OSError


@pytest.mark.skipif(platform.machine() != "x86_64", reason="other flags, and always fused")
@pytest.mark.parametrize(
    ("flags", "finished"),
    [
        ("-O2", True),
        ("-O3 -mavx2 -fopenmp", True),
        ("-march=haswell", True),  # nothing is fused without optimisation
        ("-O3 -march=haswell", False),
        ("-O3 -march=haswell -mno-fma", True),
        ("-O2 -mfma", False),
        ("-Ofast", False),
        ("-Ofast -O0", True),
        ("-O2 -ffast-math", False),
        ("-O2 -funsafe-math-optimizations", False),
        ("-O1 -mfpmath=387", False),
        ("-O2 -march=nonsense", False),
    ],
)
def test_flags_with_which_results_follow_inlining(
    toolchain: Toolchain, finish: Finish, flags: str, finished: bool
) -> None:  # fmt: skip
    with contextlib.closing(Runner()) as runner:
        plugins = Plugins(finish.plugin.parent.parent, runner)
        for _ in ("asked", "remembered"):
            given = asyncio.run(plugins.finish(toolchain, flags.split()))
            assert given == (finish if finished else None)


def test_a_header_that_it_sorts(tmp_path: Path, toolchain: Toolchain, finish: Finish) -> None:
    """The sort is replaced, and the same object comes of the header."""
    assert SORT in finish.options
    objects = []
    for number, options in enumerate(([], [f"{SORT}=tell"])):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "it.h").write_text(f"{HEADER}{finish.line}\n")
        (folder / "unit.cpp").write_text(UNIT)
        plugin = [finish.options[0], *options]
        said = run(folder, *toolchain.argv, *plugin, "-x", "c++-header", "it.h", "-o", "it.h.gch")
        assert ("warmcc-sorted=" in said) == bool(options)
        use = ["-Winvalid-pch", "-Werror=invalid-pch", "-include", "it.h"]
        run(folder, *toolchain.argv, *use, "-c", "unit.cpp", "-o", "unit.o")
        run(folder, *toolchain.argv, "unit.o", "-o", "unit")
        run(folder, "./unit")
        objects.append((folder / "unit.o").read_bytes())
    assert objects[0] == objects[1]


def test_where_no_code_may_be_changed(tmp_path: Path, toolchain: Toolchain, finish: Finish) -> None:
    """g++ sorts itself, and the header is as good."""
    (tmp_path / "it.h").write_text(f"{HEADER}{finish.line}\n")
    (tmp_path / "unit.cpp").write_text(UNIT)
    plugin = [finish.options[0], f"{SORT}=tell"]
    words = [*toolchain.argv, *plugin, "-x", "c++-header", "it.h", "-o", "it.h.gch"]
    try:
        said = run(tmp_path, *words, before=no_new_code)
    except subprocess.SubprocessError:
        pytest.skip("this kernel cannot forbid it")
    assert "warmcc-sorted=" not in said
    use = ["-Winvalid-pch", "-Werror=invalid-pch", "-include", "it.h"]
    run(tmp_path, *toolchain.argv, *use, "unit.cpp", "-o", "unit")
    run(tmp_path, "./unit")


def test_another_daemon_finds_it(tmp_path: Path, toolchain: Toolchain) -> None:
    with contextlib.closing(Runner()) as runner:
        first = asyncio.run(Plugins(tmp_path, runner).finish(toolchain, []))
        made = sorted(tmp_path.rglob("*"))
        assert asyncio.run(Plugins(tmp_path, runner).finish(toolchain, [])) == first
    assert sorted(tmp_path.rglob("*")) == made
