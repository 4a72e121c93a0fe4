"""A project that is compiled in one folder and then in another, as ``pip`` does with an archive:
what the compiler would make there, and where that may be something else, it makes it.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from tests.support.daemons import Daemon
from tests.support.host_code import code_of

SOURCE = """#include <c10/util/Exception.h>
#include "own.h"
extern "C" int twice(int value) {
  int unused;
  TORCH_CHECK(value > 0, "it is ", value);
  TORCH_INTERNAL_ASSERT(value < 1000);
  return OWN * value;
}
extern "C" int raised(char* said) {
  try {
    twice(0);
  } catch (const c10::Error& error) {
    return snprintf(said, 4096, "%s", error.what());
  }
  return 0;
}
"""
Y = '#include "own.h"\nextern "C" int own() { return OWN; }\n'
ASKS = """#if __has_include("FOLDER/csrc/own.h")
#include "own.h"
#else
#define OWN 8
#endif"""
Compiles = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder below one whose name no flag has."""
    folder = tmp_path / "first-of-two"
    (folder / "csrc").mkdir(parents=True)
    (folder / "csrc" / "own.h").write_text("#define OWN 2\n")
    (folder / "csrc" / "x.cpp").write_text(SOURCE)
    return folder


@pytest.fixture
def compiles(daemon: Daemon) -> Compiles:
    """Compile a project's source; with ``ours`` by the daemon, which must answer."""

    def compiled(folder: Path, *flags: str, ours: bool = True) -> subprocess.CompletedProcess[str]:
        (folder / "build").mkdir(exist_ok=True)
        headers = [word for path in cpp_extension.include_paths() for word in ("-isystem", path)]
        words = [
            os.environ.get("CXX", "c++"), "-O2", "-g", "-Wall", "-fPIC", "-std=c++20", *headers,
            *flags, f"-I{folder}/csrc", "-MD", "-MF", "x.d", "-c", f"{folder}/csrc/x.cpp",
            "-o", "x.o" if ours else "stock.o",
        ]  # fmt: skip
        launcher = [sys.executable, "-m", "warmcc.client.cli"] if ours else []
        return subprocess.run(
            [*launcher, *words], cwd=folder / "build", env={**os.environ, **daemon.environment},
            capture_output=True, text=True, timeout=280,
        )  # fmt: skip

    return compiled


def moved(daemon: Daemon) -> int:
    """How many objects were taken from other folders."""
    return int(daemon.status()["elsewhere"].get("used", 0))


def counts(daemon: Daemon) -> tuple[int, int]:
    return int(daemon.status()["compiles"]), moved(daemon)


def said(folder: Path, name: str) -> tuple[int, str]:
    """What an object's functions return, linked."""
    library = folder / f"{name}.so"
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    argv = ["c++", "-shared", f"{folder}/build/{name}.o", "-o", str(library), *libraries, "-lc10"]
    subprocess.run(argv, check=True)
    loaded, text = ctypes.CDLL(str(library)), ctypes.create_string_buffer(4096)
    loaded.raised(text)
    return loaded.twice(3), text.value.decode()


@pytest.mark.parametrize("level", ["-O2", "-O0"])
def test_a_project_in_another_folder(
    daemon: Daemon, project: Path, compiles: Compiles, level: str
) -> None:
    first = compiles(project, level)
    assert first.returncode == 0, first.stderr
    compiled, taken = counts(daemon)
    for name in ("b", "the-second-one-which-has-a-much-longer-name"):
        folder = project.parent / name
        shutil.copytree(project, folder)
        shutil.rmtree(folder / "build")
        stock, ours = compiles(folder, level, ours=False), compiles(folder, level)
        assert (ours.returncode, ours.stderr) == (0, stock.stderr)
        assert "[-Wunused-variable]" in ours.stderr and f"{folder}/csrc/x.cpp" in ours.stderr
        taken += 1
        assert counts(daemon) == (compiled, taken)
        made = folder / "build" / "x.o"
        if level != "-O0":  # it has addends in it
            assert code_of(made) == code_of(folder / "build" / "stock.o")
        assert str(project).encode() not in made.read_bytes()
        number, text = said(folder, "x")
        assert number == 6 and f"{folder}/csrc/x.cpp:5" in text
        assert (number, text.partition("\n")[0]) == (6, said(folder, "stock")[1].partition("\n")[0])
        assert f"{folder}/csrc/own.h" in (folder / "build" / "x.d").read_text()
        shutil.rmtree(project)  # the next one comes from this one, or from none
        shutil.copytree(folder, project)
    again = compiles(folder, level)
    assert again.returncode == 0 and counts(daemon) == (compiled, taken), "now it is a plain hit"


def load_verbosely(daemon: Daemon, folder: Path) -> list[str]:
    """What was printed, in lines, and the path of the library."""
    program = f"""import sys, warmcc
sources = [f"{folder}/csrc/{{name}}.cpp" for name in "xy"]
path = warmcc.load("two", sources, extra_cflags=["-O2"], is_python_module=False, verbose=True)
print("PATH", path, flush=True)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, **daemon.environment},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    (path,) = (line.removeprefix("PATH ") for line in lines if line.startswith("PATH "))
    return [*(line for line in lines if not line.startswith("PATH ")), path]


def test_commands_are_shown_where_objects_are_of_another_folder(
    daemon: Daemon, project: Path
) -> None:
    """As of a hit: they are in the new folder's names, and marked."""
    (project / "csrc" / "y.cpp").write_text(Y)
    load_verbosely(daemon, project)
    folder = other(project)
    for _ in ("objects of the other folder", "a hit"):
        printed = load_verbosely(daemon, folder)
        for name in "xy":
            (line,) = (one for one in printed if f" -o {name}.o" in one)
            assert line.startswith("[reused] ") and f"-c {folder}/csrc/{name}.cpp" in line
            assert str(project) + "/" not in line


def test_a_load_in_another_folder(daemon: Daemon, project: Path) -> None:
    """Of its two sources, the one that was not edited there is taken. In a second process, as in
    the same one the second extension has another name."""
    (project / "csrc" / "y.cpp").write_text(Y)

    def load(folder: Path) -> ctypes.CDLL:
        *printed, path = load_verbosely(daemon, folder)
        assert all(f"{folder}/csrc/{name}.cpp" in "".join(printed) for name in "xy")
        return ctypes.CDLL(path)

    assert load(project).twice(3) == 6
    compiled, taken = counts(daemon)
    folder = other(project)
    (folder / "csrc" / "y.cpp").write_text('extern "C" int own() { return 11; }\n')
    loaded = load(folder)
    assert (loaded.twice(3), loaded.own()) == (6, 11)
    assert counts(daemon) == (compiled + 1, taken + 1)
    text = ctypes.create_string_buffer(4096)
    loaded.raised(text)
    assert f"{folder}/csrc/x.cpp:5" in text.value.decode()


def test_without_it_only_the_time_is_another(
    project: Path, compiles: Compiles, daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = Daemon(other_folders=False)
    without.start()
    try:
        monkeypatch.setattr(daemon, "environment", without.environment)
        assert compiles(project).returncode == 0
        folder = other(project)
        assert compiles(folder).returncode == 0
        assert counts(without) == (2, 0) and said(folder, "x")[0] == 6
        without.stop()
    finally:
        without.discard()


def other(project: Path, name: str = "second") -> Path:
    folder = project.parent / name
    shutil.copytree(project, folder)
    return folder


def test_what_is_another_project(daemon: Daemon, project: Path, compiles: Compiles) -> None:
    assert compiles(project).returncode == 0
    compiled, taken = counts(daemon)
    folder = other(project)
    (folder / "csrc" / "own.h").write_text("#define OWN 5\n")
    assert compiles(folder).returncode == 0
    assert counts(daemon) == (compiled + 1, taken) and said(folder, "x")[0] == 15
    folder = other(project, "third")
    assert compiles(folder, "-DNDEBUG").returncode == 0
    assert counts(daemon) == (compiled + 2, taken)


def test_a_header_that_is_found_first(daemon: Daemon, project: Path, compiles: Compiles) -> None:
    """It is in a folder that the first project searched in vain."""
    source = project / "csrc" / "x.cpp"
    source.write_text(source.read_text().replace('"own.h"', "<own.h>"))
    (project / "early").mkdir()
    assert compiles(project, f"-I{project}/early").returncode == 0
    compiled, taken = counts(daemon)
    folder = other(project)
    (folder / "early" / "own.h").write_text("#define OWN 7\n")
    assert compiles(folder, f"-I{folder}/early").returncode == 0
    assert counts(daemon) == (compiled + 1, taken) and said(folder, "x")[0] == 21


def test_a_header_behind_a_link(daemon: Daemon, project: Path, compiles: Compiles) -> None:
    """In dependency files g++ calls headers of ``-isystem`` by what links lead to, if that is
    shorter: what the first project read is still there, and the second one reads another file."""
    source = project / "csrc" / "x.cpp"
    source.write_text(source.read_text().replace('"own.h"', "<named.h>"))
    folder = other(project)
    for one, place, number in ((project, "s", 2), (folder, "t", 7)):
        (one.parent / place).mkdir()
        (one.parent / place / "named.h").write_text(f"#define OWN {number}\n")
        (one / "linked").symlink_to(one.parent / place)
        assert compiles(one, "-isystem", f"{one}/linked").returncode == 0
    assert said(folder, "x")[0] == 21


@pytest.mark.parametrize(
    ("before", "after", "flags"),
    [
        ("return OWN * value;", "return __builtin_strlen(__FILE__);", ()),
        ("return OWN * value;", "return sizeof(__FILE__);", ()),
        ('#include "own.h"', '#include "FOLDER/csrc/own.h"', ()),
        ('#include "own.h"', ASKS, ()),
        ("", "", ("-ffile-prefix-map=PARENT=x",)),
    ],
    ids=["its length", "its size", "by its whole name", "asked for", "renamed above"],
)  # fmt: skip
def test_where_more_depends_on_the_folder(
    daemon: Daemon, project: Path, compiles: Compiles, before: str, after: str,
    flags: tuple[str, ...],
) -> None:  # fmt: skip
    source = project / "csrc" / "x.cpp"
    source.write_text(source.read_text().replace(before, after.replace("FOLDER", str(project))))
    flags = tuple(flag.replace("PARENT", str(project.parent)) for flag in flags)
    assert compiles(project, *flags).returncode == 0
    _, taken = counts(daemon)
    folder = other(project)
    shutil.rmtree(folder / "build")
    header = project / "csrc" / "own.h"
    if after == ASKS:
        header.unlink()
    else:
        header.write_text("#define OWN 9\n")
    for is_ours in (False, True):
        done = compiles(folder, *flags, ours=is_ours)
        assert done.returncode == 0, done.stderr
    assert counts(daemon)[1] == taken
    assert code_of(folder / "build" / "x.o") == code_of(folder / "build" / "stock.o")
    assert said(folder, "x")[0] == said(folder, "stock")[0] != 6 or not after
