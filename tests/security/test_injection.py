"""Requests that try to have a command of theirs run: in names, flags, paths, variables and
interpreters, through the shell, through ninja and through programs that the daemon calls. Each
would leave a marker file, and none may.
"""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq

from tests.calls import Connection, interpreter, request
from tests.daemons import Daemon
from warmcc.protocol import Built, Declined, Failed, Refused

Context = zmq.Context[zmq.Socket[bytes]]
Attack = Callable[
    [str, Path], dict[str, Any]
]  # what it changes of a request, given a command and an empty folder

_numbers = itertools.count()
LIBRARY = 'extern "C" int seven() { return 7; }\n'
OUT_OF_DOUBLE_QUOTES = (
    '-DX="\'";{run};-DY="\'"'  # to a reader who forgets double quotes it is all in single ones
)
NAMES = {
    "semicolon": "x;{run};y", "dollar": "x$({run})", "backticks": "x`{run}`", "newline": "x\n{run}\ny",
    "nul": "x\0{run}", "and": "x&&{run}&&y", "pipe": "x|{run}|y", "redirection": "x>{folder}/marker",
    "quotes": "x';{run};'", "double quotes": 'x";{run};"', "out of quotes": "x\"'\";{run};\"'\"",
    "variable": "x\ncflags = ;{run};\nsycl_cflags =", "return": "x\r{run}", "tab": "x\t;{run}",
    "rule": "x: compile main.cpp\nrule evil\n  command = {run}\nbuild y: evil\nbuild z",
    "up": "../../x", "absolute": "{folder}/marker", "slash": "a/b", "dots": "..", "minus": "-x",
    "option": "-o{folder}/marker", "at": "@{folder}/flags", "substitution": "x<({run})", "escape": "x\\;{run};",
    "dollar brace": "x${{IFS}}", "without a space": "x;cd;>marker;y", "backticks without a space": "x`cd;>marker`",
    "ninja's dollar": "x$$(cd;>marker)",
}  # fmt: skip
FLAGS = {
    "semicolon": "-DX=1;{run};", "dollar": "-DX=$({run})", "ninja's dollar": "-DX=$$({run})",
    "backticks": "-DX=`{run}`", "newline": "-Wl,-rpath,/x'\ncflags = ;{run};\nsycl_cflags = '",
    "define": "-DX='\ncflags = ;{run};\nsycl_cflags = '", "folder": "-I'/x\ncflags = ;{run};\nsycl_cflags = '",
    "out of double quotes": OUT_OF_DOUBLE_QUOTES, "continued": "-DX=1 $", "bar": "-DX=1|{run}",
    "ninja's space": "-DX=1$ ;{run}", "return": "-DX=1\r;{run}", "end of a word": "-DX=1 #",
    "out of quotes": "-DX='a';{run};''",
}  # fmt: skip
PATHS = {
    "newline": "/x\ncflags = ;{run};\nsycl_cflags = ", "semicolon": "/x;{run};", "dollar": "/x$({run})",
    "quote": "/x';{run};'", "ninja's dollar": "/x$$({run})", "backticks": "/x`{run}`",
    "double quotes": '/x";{run};"', "spaces": "/x {run}", "bar": "/x|{run}",
    "variable": "/x\nldflags = ;{run};\nsycl_cflags = ", "variable of ninja's": "/x$cflags';{run};'",
}  # fmt: skip
VARIABLES = {
    "CC": "gcc;{run};", "CXX": "g++;{run};", "LANG": "x\n{run}", "MAX_JOBS": "1;{run}", "HOME": "/x\n{run}",
    "TORCH_EXTENSIONS_DIR": "/x\ncflags = ;{run};\nsycl_cflags = ", "TORCH_CUDA_ARCH_LIST": "9.0;{run}",
    "CUDA_VISIBLE_DEVICES": "0;{run}", "SOURCE_DATE_EPOCH": "1;{run}", "LD_RUN_PATH": "/x;{run}",
    "CUDNN_HOME": "/x;{run};", "CUDA_INC_PATH": "/x\ncflags = ;{run};\nsycl_cflags = ", "PYTORCH_NVCC": "/bin/sh;{run}",
    "PYTORCH_ROCM_ARCH": "x;{run}", "TORCH_XPU_ARCH_LIST": "x;{run}",
}  # fmt: skip

CCACHE_LOOKS = ("HOME", "XDG_CONFIG_HOME", "CCACHE_CONFIGPATH", "CCACHE_DIR")


def program(folder: Path, name: str, run: str) -> str:
    """A program of the attacker's."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{run}\nexit 1\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def planted_path(run: str, folder: Path) -> dict[str, Any]:
    for name in (
        "c++",
        "g++",
        "gcc",
        "cc",
        "ninja",
        "as",
        "ld",
        "nvcc",
        "icpx",
        "hipcc",
        "nice",
        "ccache",
    ):
        program(folder, f"bin/{name}", run)
    return {"environment": {"PATH": f"{folder}/bin:/usr/bin:/bin"}}


def planted_interpreter(run: str, folder: Path) -> dict[str, Any]:
    return {
        "interpreter": msgspec.structs.replace(
            interpreter(), executable=program(folder, "python3", run)
        )
    }


def planted_torch(run: str, folder: Path) -> dict[str, Any]:
    for name in ("torch", "numpy"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"import os; os.system({run!r})\n")
    (folder / "torch" / "version.py").write_text("__version__ = '2.0'\n")
    return {"interpreter": msgspec.structs.replace(interpreter(), torch_dir=str(folder / "torch"))}


def planted_ccache(variable: str) -> Attack:
    """ccache reads a file that names a program to put in front of the compiler."""

    def attack(run: str, folder: Path) -> dict[str, Any]:
        below = {"HOME": ".config/ccache/ccache.conf", "CCACHE_CONFIGPATH": "ccache.conf"}
        place = folder / below.get(variable, "ccache/ccache.conf")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(f"prefix_command = {program(folder, 'front', run)}\n")
        value = str(place) if variable == "CCACHE_CONFIGPATH" else str(folder)
        return {"environment": {"PATH": os.environ["PATH"], variable: value}}

    return attack


def planted_compiler(variable: str) -> Attack:
    def attack(run: str, folder: Path) -> dict[str, Any]:
        return {
            "environment": {"PATH": os.environ["PATH"], variable: program(folder, "compiler", run)},
            "with_cuda": True,
        }

    return attack


def planted_toolkit(run: str, folder: Path) -> dict[str, Any]:
    program(folder, "cuda/bin/nvcc", run)
    changes = {"environment": {"PATH": os.environ["PATH"], "CUDA_HOME": f"{folder}/cuda"}}
    return {**changes, "cuda_sources": ["__global__ void nothing() {}\n"]}


def planted_sycl(run: str, folder: Path) -> dict[str, Any]:
    return {**planted_path(run, folder), "with_sycl": True}


def said(text: str, **more: Callable[[str], Any]) -> Attack:
    """The attack that puts a text in fields. Names hold no slash; their commands go home first."""

    def attack(run: str, folder: Path) -> dict[str, Any]:
        spoken = text.format(run=run, folder=folder)
        variables = {"PATH": os.environ["PATH"], "HOME": str(folder)}
        return {"environment": variables, **{name: make(spoken) for name, make in more.items()}}

    return attack


def in_file_name(text: str) -> Attack:
    def attack(run: str, folder: Path) -> dict[str, Any]:
        source = folder / (
            text.format(run=run.replace("/", "%"), folder="").replace("/", "%").replace("\0", "")
            + ".cpp"
        )
        source.write_text(LIBRARY)
        return {
            "call": "load",
            "cpp_sources": [],
            "no_implicit_headers": False,
            "sources": [str(source)],
        }

    return attack


def variable(name: str, text: str) -> Attack:
    def attack(run: str, folder: Path) -> dict[str, Any]:
        found = {"PATH": os.environ["PATH"], name: text.format(run=run, folder=folder)}
        cuda = (
            ["__global__ void nothing() {}\n"]
            if "CU" in name or name in ("CC", "PYTORCH_NVCC")
            else []
        )
        return {
            "environment": found,
            "cuda_sources": cuda,
            "cpp_sources": ['#include "x"\n' + LIBRARY],
        }

    return attack


ATTACKS: dict[str, Attack] = {
    **{f"name, {what}": said(text, name=str, module_name=str) for what, text in NAMES.items()},
    **{f"module_name, {what}": said(text, module_name=str) for what, text in NAMES.items()},
    **{
        f"{field}, {what}": said(text, **{field: lambda spoken: [spoken]})
        for field in ("extra_cflags", "extra_ldflags", "extra_cuda_cflags", "extra_sycl_cflags")
        for what, text in FLAGS.items()
    },
    **{f"extra_include_paths, {what}": said(text, extra_include_paths=lambda s: [s]) for what, text in PATHS.items()},
    **{
        f"build_directory, {what}": said(text, build_directory=str, extra_cflags=lambda _: ["-Irelative"])
        for what, text in PATHS.items()
    },
    **{
        f"home, {what}": said(text, build_directory=str, cpp_sources=lambda _: ['#include "x"\n' + LIBRARY])
        for what, text in PATHS.items()
    },
    **{f"sources, {what}": in_file_name(text) for what, text in PATHS.items()},
    **{f"functions, {what}": said(text, functions=lambda s: [s]) for what, text in NAMES.items()},
    **{f"documentation, {what}": said(text, functions=lambda s: {"seven": s}) for what, text in PATHS.items()},
    **{f"variable {name}": variable(name, text) for name, text in VARIABLES.items()},
    **{f"a planted {name}": planted_compiler(name) for name in ("CC", "CXX", "PYTORCH_NVCC")},
    **{f"a planted ccache.conf, {name}": planted_ccache(name) for name in CCACHE_LOOKS},
    "flags, variable of ninja's": said(
        "';{run};'", extra_cflags=lambda quoted: [f"-DX={quoted}"], extra_ldflags=lambda _: ["-DX='$cflags'"]
    ),
    "a planted toolkit": planted_toolkit,
    "a planted PATH": planted_path,
    "a planted SYCL compiler": planted_sycl,
    "a planted interpreter": planted_interpreter,
    "a planted torch": planted_torch,
}  # fmt: skip
# In a daemon of one's own these are the caller's to choose: that it runs them is what was asked
# for.
ONES_OWN = ("a planted", "variable CXX")


@pytest.fixture(scope="module")
def own() -> Iterator[Daemon]:
    yield from running(shared=False)


@pytest.fixture(scope="module")
def shared() -> Iterator[Daemon]:
    yield from running(shared=True)


def running(**settings: Any) -> Iterator[Daemon]:
    daemon = Daemon(pch=False, cuda_warm=False, **settings)
    try:
        yield daemon.start()
        daemon.stop()
    finally:
        daemon.discard()


def put(attack: Attack, daemon: Daemon, context: Context, folder: Path) -> Any:
    """The answer to an attack, and none may have run its command."""
    folder.mkdir()
    outside = sorted(Path("/tmp").iterdir())
    fields = {
        "name": "attack", "module_name": "attack", "is_python_module": False, "cpp_sources": [LIBRARY],
        "environment": {"PATH": os.environ["PATH"]}, **attack(f"touch {folder}/marker", folder),
    }  # fmt: skip
    fresh = f"int {daemon.folder.name}_{next(_numbers)};\n".replace(
        "-", "_"
    )  # nothing of it is in the store
    fields["cpp_sources"] = [text + fresh for text in fields["cpp_sources"]]
    wanted = request(**fields)
    connection = Connection(daemon, context)
    answer = connection.build(wanted)
    assert isinstance(answer, (Built, Failed, Declined, Refused)), answer
    assert not (folder / "marker").exists(), f"its command ran: {answer}"
    assert "internal error" not in getattr(answer, "reason", ""), answer
    assert [
        path for path in Path("/tmp").iterdir() if path.name == "marker" and path not in outside
    ] == []
    return answer


def plain(connection: Connection) -> None:
    wanted = request(
        name="plain", module_name="plain", is_python_module=False, cpp_sources=[LIBRARY],
        environment={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    answer = connection.build(wanted)
    assert isinstance(answer, Built), answer


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_command_of_a_callers_runs_in_a_shared_daemon(
    attack: str, shared: Daemon, context: Context, tmp_path: Path
) -> None:
    put(ATTACKS[attack], shared, context, tmp_path / "folder")
    plain(Connection(shared, context))


@pytest.mark.parametrize(
    "attack", [attack for attack in ATTACKS if not attack.startswith(ONES_OWN)]
)
def test_no_command_in_a_text_runs_in_ones_own_daemon(
    attack: str, own: Daemon, context: Context, tmp_path: Path
) -> None:
    put(ATTACKS[attack], own, context, tmp_path / "folder")
    plain(Connection(own, context))


# ---------------------------------------------------------------------- what stock makes of it

STOCK = """
def load_inline(name, build_directory, **_):
    with open(build_directory + "/main.cpp", "w") as file:
        file.write("int nothing;\\n")
    with open(build_directory + "/build.ninja", "w") as file:
        file.write({ninja!r}.replace("SCRATCH", build_directory))
load = load_inline
"""
PLAN = """ninja_required_version = 1.3
cxx = c++
cflags = -fPIC
post_cflags =
ldflags = -shared
rule compile
  command = $cxx -MMD -MF $out.d $cflags -c $in -o $out $post_cflags
rule link
  command = $cxx $in $ldflags -o $out
build main.o: compile SCRATCH/main.cpp
build attack.so: link main.o
default attack.so
"""
# What is changed of the plan, whether only a shared daemon minds, and what is said of it.
PLANS = {
    "nothing": ("", "", False, ""),
    "a command in cflags": ("-fPIC", "-fPIC ;touch {marker}", False, "the shell would read ';'"),
    "a command in ldflags": ("-shared", "-shared $$(touch {marker})", False, "the shell would read '$'"),
    "a command in cxx": ("c++", "c++ ;touch {marker};", False, "the shell would read ';'"),
    "a variable of ninja's": ("-fPIC", "-fPIC '$cxx'", False, "ninja would read '$c'"),
    "a variable twice": ("post_cflags =", "cflags = ;touch {marker}", False, "sets cflags twice"),
    "a rule": ("rule link", "rule evil\n  command = touch {marker}\nrule link", False, "unknown rule evil"),
    "a command": ("$cxx $in $ldflags -o $out", "touch {marker}", False, "unknown command of rule link"),
    "a setting of a rule": ("rule link", "rule link\n  rspfile = {marker}", False, "unknown setting rspfile"),
    "another line": ("default", "include {marker}\ndefault", False, "unknown line"),
    "another compiler": ("cxx = c++", "cxx = {marker}", False, "was not found"),
    "a compiler that is there": ("cxx = c++", "cxx = true", False, "torch would call true"),
    "another target": ("attack.so", "{marker}", False, "torch makes"),
    "an option for an object": ("main.o", "-fplugin.o", False, "the file name '-fplugin.o'"),
    "a file of options": ("main.o", "@main.o", False, "the file name '@main.o'"),
    "a bar": ("SCRATCH/main.cpp", "/x|{marker}", False, "the file name"),
    "a build line without a rule": ("build attack.so: link main.o", "build attack.so:", False, "unknown build line"),
    "a plug-in": ("-fPIC", "-fPIC -fplugin={marker}", True, "refuses the flag -fplugin="),
    "a script for the linker": ("-shared", "-shared -Wl,-T,{marker}", True, "refuses the flag -Wl,-T,"),
    "a wrapper": ("post_cflags =", "post_cflags = -wrapper {marker}", True, "refuses the flag -wrapper"),
}  # fmt: skip


@pytest.mark.parametrize("mode", ["own", "shared"])
@pytest.mark.parametrize("plan", PLANS)
def test_a_plan_is_not_taken_on_trust(
    plan: str, mode: str, fresh_daemon: Callable[..., Daemon], context: Context, tmp_path: Path
) -> None:
    """A torch that writes something else into its build.ninja than was asked for: however it got
    there.
    """
    old, new, only_shared, said = PLANS[plan]
    site = tmp_path / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
    (site / "torch" / "utils").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (tmp_path / "pyvenv.cfg").write_text(
        f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n"
    )
    for name, text in (
        ("torch/__init__", "__version__ = '2.0'\n"),
        ("torch/version", "__version__ = '2.0'\n"),
    ):
        (site / f"{name}.py").write_text(text)
    ninja = PLAN.replace(
        old, new.format(marker=tmp_path / "marker"), 1 if old == "cxx = c++" else -1
    )
    (site / "torch" / "utils" / "__init__.py").touch()
    (site / "torch" / "utils" / "cpp_extension.py").write_text(STOCK.format(ninja=ninja))
    python = msgspec.structs.replace(
        interpreter(), executable=str(tmp_path / "bin" / "python"), torch_dir=str(site / "torch")
    )
    daemon = fresh_daemon(
        shared=mode == "shared", interpreters=[python.executable], pch=False, ccache=False
    )
    wanted = request(
        name="attack", module_name="attack", is_python_module=False, cpp_sources=["int nothing;\n"],
        interpreter=python, environment={"PATH": os.environ["PATH"]},
    )  # fmt: skip
    answer = Connection(daemon, context).build(wanted)
    assert not (tmp_path / "marker").exists()
    if not said:
        assert isinstance(answer, Built), answer
    elif mode == "shared" or not only_shared:
        assert said in (answer.message if isinstance(answer, Failed) else answer.reason), answer


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("sources", ["/a\n.cpp"]), ("extra_cflags", ["-O2\t"]), ("extra_ldflags", ["\r"]),
        ("extra_cuda_cflags", ["\x0b"]),
        ("extra_include_paths", ["/a\nb"]), ("build_directory", "/a\x7f"), ("functions", ["f\0"]),
        ("functions", {"f": "g\x1b"}), ("environment", {"LANG": "a\nb"}), ("cpp_sources", ["a\0b"]),
        ("cuda_sources", ["a\x01"]), ("extra_sycl_cflags", ["\n"]),
        ("interpreter", msgspec.structs.replace(interpreter(), torch_dir="/a\nb")),
    ],
)  # fmt: skip
def test_no_field_has_control_characters(
    field: str, value: Any, own: Daemon, context: Context
) -> None:
    answer = Connection(own, context).build(request(**{field: value}))
    assert isinstance(answer, Declined) and answer.reason == f"a control character in {field}", (
        answer
    )


@pytest.mark.parametrize(
    "changes", [{"with_sycl": True}, {"sycl_sources": ["int x;"]}, {"sources": ["/x.sycl"]}]
)
def test_no_sycl_compiler_is_run(changes: dict[str, Any], own: Daemon, context: Context) -> None:
    """Stock looks for one on PATH, and runs it, to plan the build: it does so in the caller's own
    process.
    """
    answer = Connection(own, context).build(request(**changes))
    assert isinstance(answer, Declined) and answer.reason == "SYCL sources", answer


def test_sources_have_lines(own: Daemon, context: Context) -> None:
    """And tabs, form feeds and what else is white space to a compiler."""
    source = 'extern "C" int\tlines()\r\n{\f return\v 7; }\n'
    wanted = request(
        name="lines", module_name="lines", is_python_module=False, cpp_sources=[source]
    )
    assert isinstance(Connection(own, context).build(wanted), Built)
