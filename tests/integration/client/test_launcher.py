"""``warmcc c++`` in front of a compiler's command: a real daemon, a real compiler, a real ninja."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from tests.support.daemons import Daemon
from warmcc.client.launcher.ask_daemon import compilers_words
from warmcc.daemon.toolchain import ninja

SOURCE = """#include <torch/types.h>
#include "own.h"
extern "C" int64_t twice(int64_t size) { int unused; return 2 * at::empty({size}).numel() + OWN; }
extern "C" const char* file() { return __FILE__; }
"""
SCRIPT = Path(__file__).parents[3] / "client" / "launcher" / "warmcc"
CXX = "g++"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own.h").write_text("#define OWN 1\n")
    (tmp_path / "a.cpp").write_text(SOURCE)
    (tmp_path / "plain.cpp").write_text("int f() { return 1; }\n")
    return tmp_path


@pytest.fixture(scope="module")
def bin_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The installed command, beside a Python that can import warmcc."""
    found = tmp_path_factory.mktemp("bin")
    (found / "warmcc").write_bytes(SCRIPT.read_bytes())
    (found / "warmcc").chmod(0o755)
    (found / "python3").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (found / "python3").chmod(0o755)
    return found


def includes() -> list[str]:
    paths = [*cpp_extension.include_paths(), sysconfig.get_paths()["include"]]
    return [word for path in paths for word in ("-isystem", path)]


def flags() -> list[str]:
    return ["-std=gnu++17", "-fPIC", "-Wall", *includes()]


def run(
    words: list[str], folder: Path, daemon: Daemon | None, bin_folder: Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", **variables}
    if daemon is not None:
        environment |= daemon.environment
    return subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=280
    )


def counts(daemon: Daemon) -> tuple[int, int]:
    found = daemon.status()["requests"]
    return int(found["hits"]), int(found["misses"])


def said(folder: Path) -> tuple[int, bytes]:
    """What the linked library says."""
    library = ctypes.CDLL(str(folder / "launched.so"))
    library.file.restype = ctypes.c_char_p
    return library.twice(3), library.file()


def test_one_source(daemon: Daemon, folder: Path, bin_folder: Path) -> None:
    command = [CXX, *flags(), "-MD", "-MF", "a.d", "-c", "a.cpp", "-o", "a.o"]
    stock = run(command, folder, None, bin_folder)
    (folder / "a.d").rename(folder / "stock.d")
    hits, misses = counts(daemon)
    for number in (1, 2):
        for name in ("a.o", "a.d"):
            (folder / name).unlink(missing_ok=True)
        ours = run(["warmcc", *command], folder, daemon, bin_folder)
        assert (ours.returncode, ours.stdout) == (0, "") and "[-Wunused-variable]" in ours.stderr
        assert ours.stderr == stock.stderr
        assert counts(daemon) == (hits + number - 1, misses + 1)
        assert (folder / "a.d").read_text().startswith("a.o: a.cpp ")
        theirs = set(ninja.dependencies(folder / "stock.d", folder))
        assert theirs <= set(ninja.dependencies(folder / "a.d", folder))
    libraries = [f"-L{path}" for path in cpp_extension.library_paths()]
    libraries += [f"-l{name}" for name in ("c10", "torch_cpu", "torch")]
    linked = [CXX, "-shared", "a.o", "-o", "launched.so", *libraries]
    assert run(["warmcc", *linked], folder, daemon, bin_folder).returncode == 0
    assert said(folder) == (7, b"a.cpp")


def test_a_source_in_a_folder_that_holds_assembler(
    daemon: Daemon, folder: Path, bin_folder: Path
) -> None:
    """The assembler calls it by its name alone; what it reads is part of the result."""
    (folder / "src").mkdir()
    text = '#include <c10/macros/Macros.h>\nasm(".data\\n.incbin \\"data\\"\\n.text");\n'
    (folder / "src/b.cpp").write_text(text)
    made = []
    for letter in "AB":
        (folder / "data").write_text(3 * letter)
        hits, misses = counts(daemon)
        for number in (0, 1):
            ours = run(
                ["warmcc", CXX, "-g", *flags(), "-c", "src/b.cpp", "-o", "b.o"],
                folder,
                daemon,
                bin_folder,
            )
            assert (ours.returncode, ours.stderr) == (0, "")
            assert counts(daemon) == (hits + number, misses + 1)
        made.append((folder / "b.o").read_bytes())
    assert b"AAA" in made[0] and b"BBB" in made[1]


@pytest.mark.parametrize("of", ["the folder", "a folder in it", "a file in it", "an edit"])
def test_a_link_that_leads_elsewhere(
    daemon: Daemon, folder: Path, bin_folder: Path, of: str
) -> None:
    """g++ names headers of ``-isystem`` by where links lead, if that is shorter."""
    inside = Path("deep/own.h")
    for number, name in enumerate("st", 1):
        (folder / name / inside).parent.mkdir(parents=True)
        (folder / name / inside).write_text(f"#define OWN {number}\n")
    link = folder / "a-folder-with-a-long-name"
    if of != "the folder" and of != "an edit":
        link.mkdir()
        link = link / "deep"
    if of == "a file in it":
        link.mkdir()
        link = link / "own.h"
    within = {"a folder in it": "deep", "a file in it": str(inside)}.get(of, ".")
    text = "#include <c10/macros/Macros.h>\n#include <deep/own.h>\n"
    text += 'extern "C" int own() { return OWN; }\n'
    (folder / "a.cpp").write_text(text)
    command = ["warmcc", CXX, *flags(), "-isystem", str(folder / "a-folder-with-a-long-name")]
    said = []
    for name in "st":
        link.unlink(missing_ok=True)
        link.symlink_to(folder / name / within)
        if of == "an edit":
            link.unlink()
            link.symlink_to(folder / "s")
            (folder / "s" / inside).write_text(f"#define OWN {'st'.index(name) + 1}\n")
        made = [*command, "-c", "a.cpp", "-o", f"{name}.o"]
        for _ in range(2):
            assert run(made, folder, daemon, bin_folder).returncode == 0
        linked = [CXX, "-shared", f"{name}.o", "-o", f"{name}.so"]
        assert run(linked, folder, None, bin_folder).returncode == 0
        said.append(ctypes.CDLL(str(folder / f"{name}.so")).own())
    assert said == [1, 2]


@pytest.mark.slow
def test_a_header_that_changes(daemon: Daemon, folder: Path, bin_folder: Path) -> None:
    """ninja builds again what the rule names, and only that."""
    command = f"warmcc {CXX} {' '.join(flags())} -MMD -MF $out.d -c $in -o $out"
    (folder / "build.ninja").write_text(
        f"rule c\n  command = {command}\n  depfile = $out.d\n  deps = gcc\nbuild a.o: c a.cpp\n"
    )
    program = ninja.executable()
    assert program is not None
    _, misses = counts(daemon)
    for number in (1, 2):
        (folder / "own.h").write_text(f"#define OWN {number}\n")
        made = run([program], folder, daemon, bin_folder)
        assert made.returncode == 0, made.stdout + made.stderr
        assert "no work to do" in run([program], folder, daemon, bin_folder).stdout
        assert counts(daemon)[1] == misses + number


def test_a_mistake_is_told_as_the_compiler_tells_it(
    daemon: Daemon, folder: Path, bin_folder: Path
) -> None:
    (folder / "a.cpp").write_text(SOURCE.replace(".numel()", ".nummel()"))
    command = [CXX, *flags(), "-c", "a.cpp", "-o", "a.o"]
    stock = run(command, folder, None, bin_folder)
    ours = run(["warmcc", *command], folder, daemon, bin_folder)
    assert (ours.returncode, ours.stdout, ours.stderr) == (1, stock.stdout, stock.stderr)
    assert not (folder / "a.o").exists()


@pytest.mark.parametrize(
    "words",
    [
        [CXX, "-c", "plain.cpp"], [CXX, "-c", "missing.cpp"], [CXX, "--version"], [CXX],
        ["/bin/sh", "-c", "echo out; echo err >&2; exit 7"], [CXX, "-E", "plain.cpp"],
        ["cc", "-dumpversion"], [CXX, "-c", "plain.cpp", "-o", "no/such/folder.o"],
        [CXX, "-c", "-I", "/torch/include", "plain.cpp"],
    ],
)  # fmt: skip
def test_all_else_is_the_compilers(words: list[str], folder: Path, bin_folder: Path) -> None:
    """No daemon can be reached here."""
    nothing = {"WARMCC_RUNTIME_DIR": str(folder / "none"), "WARMCC_AUTOSTART": "0"}
    theirs = run(words, folder, None, bin_folder)
    ours = run(["warmcc", *words], folder, None, bin_folder, **nothing)
    assert (ours.returncode, ours.stdout, ours.stderr) == (
        theirs.returncode, theirs.stdout, theirs.stderr,
    )  # fmt: skip


def test_a_file_that_a_variable_asks_for(
    daemon: Daemon, folder: Path, bin_folder: Path, tmp_path: Path
) -> None:
    """With it, g++ even takes a header that is missing."""
    (folder / "a.cpp").write_text("#include <c10/macros/Macros.h>\n#include <c10/no/such.h>\n")
    command = [CXX, *flags(), "-c", "a.cpp", "-o", "a.o"]
    told = {}
    for side, launcher in (("theirs", []), ("ours", ["warmcc"])):
        rule = tmp_path / side
        done = run([*launcher, *command], folder, daemon, bin_folder, DEPENDENCIES_OUTPUT=str(rule))
        told[side] = done.returncode, done.stderr, rule.read_text()
    assert told["ours"] == told["theirs"]


def test_an_object_in_the_place_of_its_source(
    daemon: Daemon, folder: Path, bin_folder: Path
) -> None:
    text = "#include <c10/macros/Macros.h>\n"
    (folder / "a.cpp").write_text(text)
    done = run(
        ["warmcc", CXX, *flags(), "-c", "a.cpp", "-o", "./a.cpp"], folder, daemon, bin_folder
    )
    assert done.returncode != 0 and "same as output" in done.stderr
    assert (folder / "a.cpp").read_text() == text


def test_without_a_daemon_the_compiler_does_it(folder: Path, bin_folder: Path) -> None:
    (folder / "a.cpp").write_text("#include <c10/macros/Macros.h>\n")
    nothing = {"WARMCC_RUNTIME_DIR": str(folder / "none"), "WARMCC_AUTOSTART": "0"}
    ours = run(["warmcc", CXX, *flags(), "-c", "a.cpp"], folder, None, bin_folder, **nothing)
    assert ours.returncode == 0 and (folder / "a.o").exists()
    assert "the compiler itself does it" in ours.stderr


def test_without_a_daemon_nothing_does_it_where_that_is_asked_for(
    folder: Path, bin_folder: Path
) -> None:
    (folder / "a.cpp").write_text("#include <c10/macros/Macros.h>\n")
    nothing = {"WARMCC_AUTOSTART": "0", "WARMCC_FALLBACK": "0"}
    for more in (
        {"WARMCC_RUNTIME_DIR": str(folder / "none")}, {"WARMCC_TIMEOUT": "soon"},
    ):  # fmt: skip
        words = ["warmcc", CXX, *flags(), "-MD", "-c", "a.cpp"]
        ours = run(words, folder, None, bin_folder, **nothing, **more)
        assert ours.returncode == 3 and "Traceback" not in ours.stderr
        assert ours.stderr.startswith("warmcc: ")
        assert ours.stderr.endswith("\nwarmcc: not compiled: WARMCC_FALLBACK is 0\n")
        assert not (folder / "a.o").exists() and not (folder / "a.d").exists()


def test_what_is_the_compilers_stays_its_own(
    daemon: Daemon, folder: Path, bin_folder: Path
) -> None:
    """WARMCC_FALLBACK=0 is about what the daemon should have done."""
    nothing = {"WARMCC_RUNTIME_DIR": str(folder / "none"), "WARMCC_FALLBACK": "0"}
    (folder / "a.cpp").write_text("#include <c10/macros/Macros.h>\n")
    for words in (
        ["-c", "plain.cpp", "-o", "plain.o"], [*flags(), "-c", "plain.cpp"],
        ["-shared", "plain.o", "-o", "plain.so"], [*flags(), "-E", "a.cpp"],
    ):  # fmt: skip
        done = run(["warmcc", CXX, *words], folder, None, bin_folder, **nothing)
        assert (done.returncode, done.stderr) == (0, "")
    # which the daemon declines
    words = ["warmcc", CXX, *flags(), "-save-temps", "-c", "a.cpp"]
    done = run(words, folder, daemon, bin_folder, WARMCC_FALLBACK="0")
    assert (done.returncode, done.stderr) == (0, "") and (folder / "a.o").exists()


def test_with_a_wrong_setting_the_compiler_does_it(folder: Path, bin_folder: Path) -> None:
    (folder / "a.cpp").write_text("#include <c10/macros/Macros.h>\n")
    wrong = {"WARMCC_TIMEOUT": "soon", "WARMCC_AUTOSTART": "0"}
    ours = run(["warmcc", CXX, *flags(), "-c", "a.cpp"], folder, None, bin_folder, **wrong)
    assert ours.returncode == 0 and (folder / "a.o").exists()
    assert "WARMCC_TIMEOUT" in ours.stderr and "Traceback" not in ours.stderr


def test_a_compiler_that_is_not_there(folder: Path, bin_folder: Path) -> None:
    for words in (["/no/such/g++", "-c", "a.cpp"], ["nvcc-none/nvcc", "-c", "a.cu"]):
        ours = run(["warmcc", *words], folder, None, bin_folder)
        assert ours.returncode == 127 and ours.stderr


def test_the_working_directory_is_not_imported_from(folder: Path, bin_folder: Path) -> None:
    for name in ("warmcc", "json"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('not ours')\n")
    done = run(["warmcc", "--version"], folder, None, bin_folder)
    assert done.returncode == 0 and done.stdout.startswith("warmcc "), done.stderr


def test_a_command_without_its_python(folder: Path) -> None:
    """Compilers need none; all else says what is missing."""
    alone = folder / "alone"
    alone.mkdir()
    (alone / "warmcc").write_bytes(SCRIPT.read_bytes())
    (alone / "warmcc").chmod(0o755)
    nothing = {"PATH": "/usr/bin:/bin"}
    compiled = subprocess.run([alone / "warmcc", CXX, "-c", "plain.cpp"], cwd=folder, env=nothing)
    assert compiled.returncode == 0 and (folder / "plain.o").exists()
    done = subprocess.run([alone / "warmcc", "status"], env=nothing, capture_output=True, text=True)
    assert done.returncode == 127 and f"there is no Python in {alone}" in done.stderr


def test_what_ninja_prints_is_not_the_compilers() -> None:
    output = (
        "[1/1] g++ -c a.cpp\nFAILED: [code=1] a.o \ng++ -c a.cpp\na.cpp:1: error: x\n"
        "ninja: build stopped: subcommand failed.\n"
    )
    assert compilers_words(output) == "a.cpp:1: error: x\n"
