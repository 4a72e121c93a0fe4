"""Texts and files that run a command of a caller's where a request is not checked."""

from __future__ import annotations

import itertools
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.support.calls import interpreter

Attack = Callable[
    [str, Path], dict[str, Any]
]  # what it changes of a request, given a command and an empty folder

numbers = itertools.count()

LIBRARY = 'extern "C" int seven() { return 7; }\n'

OUT_OF_DOUBLE_QUOTES = (
    '-DX="\'";{run};-DY="\'"'  # to a reader who forgets double quotes it is all in single ones
)

NAMES = {
    "semicolon": "x;{run};y", "dollar": "x$({run})", "backticks": "x`{run}`",
    "newline": "x\n{run}\ny", "nul": "x\0{run}", "and": "x&&{run}&&y", "pipe": "x|{run}|y",
    "redirection": "x>{folder}/marker", "quotes": "x';{run};'", "double quotes": 'x";{run};"',
    "out of quotes": "x\"'\";{run};\"'\"", "variable": "x\ncflags = ;{run};\nsycl_cflags =",
    "return": "x\r{run}", "tab": "x\t;{run}",
    "rule": "x: compile main.cpp\nrule evil\n  command = {run}\nbuild y: evil\nbuild z",
    "up": "../../x", "absolute": "{folder}/marker", "slash": "a/b", "dots": "..", "minus": "-x",
    "option": "-o{folder}/marker", "at": "@{folder}/flags", "substitution": "x<({run})",
    "escape": "x\\;{run};", "dollar brace": "x${{IFS}}", "without a space": "x;cd;>marker;y",
    "backticks without a space": "x`cd;>marker`", "ninja's dollar": "x$$(cd;>marker)",
}  # fmt: skip

FLAGS = {
    "semicolon": "-DX=1;{run};", "dollar": "-DX=$({run})", "ninja's dollar": "-DX=$$({run})",
    "backticks": "-DX=`{run}`", "newline": "-Wl,-rpath,/x'\ncflags = ;{run};\nsycl_cflags = '",
    "define": "-DX='\ncflags = ;{run};\nsycl_cflags = '",
    "folder": "-I'/x\ncflags = ;{run};\nsycl_cflags = '",
    "out of double quotes": OUT_OF_DOUBLE_QUOTES, "continued": "-DX=1 $", "bar": "-DX=1|{run}",
    "ninja's space": "-DX=1$ ;{run}", "return": "-DX=1\r;{run}", "end of a word": "-DX=1 #",
    "out of quotes": "-DX='a';{run};''",
}  # fmt: skip

PATHS = {
    "newline": "/x\ncflags = ;{run};\nsycl_cflags = ", "semicolon": "/x;{run};",
    "dollar": "/x$({run})", "quote": "/x';{run};'", "ninja's dollar": "/x$$({run})",
    "backticks": "/x`{run}`", "double quotes": '/x";{run};"', "spaces": "/x {run}",
    "bar": "/x|{run}", "variable": "/x\nldflags = ;{run};\nsycl_cflags = ",
    "variable of ninja's": "/x$cflags';{run};'",
}  # fmt: skip

VARIABLES = {
    "CC": "gcc;{run};", "CXX": "g++;{run};", "LANG": "x\n{run}", "MAX_JOBS": "1;{run}",
    "HOME": "/x\n{run}", "TORCH_EXTENSIONS_DIR": "/x\ncflags = ;{run};\nsycl_cflags = ",
    "TORCH_CUDA_ARCH_LIST": "9.0;{run}", "CUDA_VISIBLE_DEVICES": "0;{run}",
    "SOURCE_DATE_EPOCH": "1;{run}", "LD_RUN_PATH": "/x;{run}", "CUDNN_HOME": "/x;{run};",
    "CUDA_INC_PATH": "/x\ncflags = ;{run};\nsycl_cflags = ", "PYTORCH_NVCC": "/bin/sh;{run}",
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
    **{f"extra_include_paths, {what}": said(text, extra_include_paths=lambda s: [s])
       for what, text in PATHS.items()},
    **{
        f"build_directory, {what}": said(text, build_directory=str,
            extra_cflags=lambda _: ["-Irelative"])
        for what, text in PATHS.items()
    },
    **{
        f"home, {what}": said(text, build_directory=str,
            cpp_sources=lambda _: ['#include "x"\n' + LIBRARY])
        for what, text in PATHS.items()
    },
    **{f"sources, {what}": in_file_name(text) for what, text in PATHS.items()},
    **{f"functions, {what}": said(text, functions=lambda s: [s]) for what, text in NAMES.items()},
    **{f"documentation, {what}": said(text, functions=lambda s: {"seven": s})
       for what, text in PATHS.items()},
    **{f"variable {name}": variable(name, text) for name, text in VARIABLES.items()},
    **{f"a planted {name}": planted_compiler(name) for name in ("CC", "CXX", "PYTORCH_NVCC")},
    **{f"a planted ccache.conf, {name}": planted_ccache(name) for name in CCACHE_LOOKS},
    "flags, variable of ninja's": said(
        "';{run};'", extra_cflags=lambda quoted: [f"-DX={quoted}"],
        extra_ldflags=lambda _: ["-DX='$cflags'"]
    ),
    "a planted toolkit": planted_toolkit,
    "a planted PATH": planted_path,
    "a planted SYCL compiler": planted_sycl,
    "a planted interpreter": planted_interpreter,
    "a planted torch": planted_torch,
}  # fmt: skip
