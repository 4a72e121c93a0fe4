"""Cases about flags, include paths, libraries, build directories and the caller's environment."""

from __future__ import annotations

import os
import subprocess

from tests.parity.case import Difference, Observed, World, case, python_module

_EMPTY_OBJECT = "int parity_own() { return 5; }\n"
_USES_OWN = python_module("PyLong_FromLong(parity_own())", "int parity_own();")


def _own_object(world: World, name: str, *flags: str, text: str = _EMPTY_OBJECT) -> str:
    """Compile something to link with; the absolute path of the object (or of what ``flags``
    make).
    """
    source = world.write(f"{name}.src.cpp", text)
    target = world.folder / name
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["g++", "-fPIC", *(flags or ("-c",)), source, "-o", str(target)], check=True)
    return str(target)


def _archive(world: World, name: str) -> str:
    path = world.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["ar", "rcs", str(path), _own_object(world, "own.o")], check=True)
    return str(path)


def _answer(
    world: World,
    name: str,
    value: str = "PyLong_FromLong(ANSWER)",
    before: str = "",
    **call: object,
) -> object:
    """Build a module and call it: its answer, or the exception's type."""
    return world.outcome(lambda: world.inline(name, python_module(value, before), **call).answer())


@case("load_inline.extra_cflags")
def defines(world: World) -> Observed:
    text = "#ifndef B\n#define B 0\n#endif\n#define ANSWER (A * 10 + B)\n"
    return {
        "one": _answer(world, "def_one", before=text, extra_cflags=["-DA=4"]),
        "two": _answer(world, "def_two", before=text, extra_cflags=["-DA=4", "-DB=2"]),
        "apart": _answer(world, "def_apart", before=text, extra_cflags=["-D", "A=4"]),
        "together": _answer(world, "def_together", before=text, extra_cflags=["-DA=4 -DB=2"]),
        "spaces": _answer(world, "def_spaces", before=text, extra_cflags=["  -DA=4\t"]),
        "undone": _answer(world, "def_undone", before=text, extra_cflags=["-DA=4", "-DB=2", "-UB"]),
        "none": _answer(world, "def_none", before=text, extra_cflags=[]),
        "empty": _answer(world, "def_empty", before=text, extra_cflags=["", "-DA=1"]),
    }


@case("load_inline.extra_cflags")
def quoted_flags(world: World) -> Observed:
    def text(name: str, flag: str) -> object:
        return _answer(world, name, "PyUnicode_FromString(TEXT)", extra_cflags=[flag])

    return {
        "single": text("quote_single", "-DTEXT='\"two words\"'"),
        "double": text("quote_double", '-DTEXT="\\"two words\\""'),
        "escaped": text("quote_escaped", '-DTEXT=\\"word\\"'),
        "whole": text("quote_whole", "'-DTEXT=\"a (b); c & d\"'"),
        "open": text("quote_open", "-DTEXT='\"never closed"),
    }


@case("load_inline.extra_cflags", stock_path=True)
def flags_for_the_shell(world: World) -> Observed:
    os.environ["PARITY_VALUE"] = "8"
    return {
        "dollar": _answer(world, "shell_dollar", extra_cflags=["-DANSWER=$$PARITY_VALUE"]),
        "command": _answer(world, "shell_command", extra_cflags=["-DANSWER=`echo 9`"]),
        "ninja": _answer(world, "shell_ninja", extra_cflags=["-DANSWER=$("]),
        "file": _answer(
            world, "shell_file", extra_cflags=["@" + world.write("flags.txt", "-DANSWER=3")]
        ),
    }


@case("load_inline.extra_cflags")
def standard_given_twice(world: World) -> Observed:
    def standard(name: str, *flags: str) -> object:
        return _answer(world, name, "PyLong_FromLong(__cplusplus)", extra_cflags=list(flags))

    return {
        "default": standard("std_default"),
        "older": standard("std_older", "-std=c++17"),
        "last": standard("std_last", "-std=c++17", "-std=gnu++20"),
        "unknown": standard("std_unknown", "-std=c++99"),
    }


@case("load_inline.extra_cflags")
def optimisation(world: World) -> Observed:
    text = "#ifdef __OPTIMIZE__\n#define ANSWER 2\n#else\n#define ANSWER 0\n#endif\n"
    return {
        "none": _answer(world, "opt_none", before=text),
        "two": _answer(world, "opt_two", before=text, extra_cflags=["-O2"]),
        "last": _answer(world, "opt_last", before=text, extra_cflags=["-O2", "-O0"]),
        "native": _answer(
            world, "opt_native", before=text, extra_cflags=["-O3", "-march=native", "-g"]
        ),
    }


@case("load_inline.extra_cflags")
def warnings_as_errors(world: World) -> Observed:
    text = python_module(before="static int unused_one() { return 1; }")
    told = ["Error building extension 'strict'", "-Werror=unused-function", "unused_one"]
    strict = {"extra_cflags": ["-Wall", "-Werror"]}
    return {
        "strict": world.outcome(world.inline, "strict", text, **strict, mentions=told),
        "loose": world.inline("loose", text, extra_cflags=["-Wall"]).answer(),
        "flag": world.outcome(
            world.inline,
            "noflag",
            text,
            extra_cflags=["-fno-such-flag"],
            mentions=["-fno-such-flag"],
        ),
    }


@case(
    "load_inline.extra_cflags",
    "load_inline.extra_ldflags",
    "load_inline.extra_include_paths",
    stock_path=True,
)
def flags_of_other_types(world: World) -> Observed:
    text = python_module()
    told = ["Error building extension"]
    world.write("include/own.h", "")
    return {
        "text": world.outcome(world.inline, "cflags_text", text, extra_cflags="-O2", mentions=told),
        "tuple": world.outcome(
            lambda: world.inline("cflags_tuple", text, extra_cflags=("-O2",)).answer()
        ),
        "number": world.outcome(world.inline, "cflags_number", text, extra_cflags=[3]),
        "none": world.outcome(world.inline, "cflags_none", text, extra_cflags=[None]),
        "ld_text": world.outcome(world.inline, "ldflags_text", text, extra_ldflags="-lm"),
        "ld_tuple": world.outcome(world.inline, "ldflags_tuple", text, extra_ldflags=("-lm",)),
        "include_text": world.outcome(
            lambda: world.inline("inc_text", text, extra_include_paths="include").answer()
        ),
        "dict": world.outcome(
            lambda: world.inline("cflags_dict", text, extra_cflags={"-O2": 1}).answer()
        ),
    }


@case("load_inline.extra_cuda_cflags", "load_inline.extra_sycl_cflags")
def device_flags_without_device_sources(world: World) -> Observed:
    devices = {"extra_cuda_cflags": ["--no-such-flag"], "extra_sycl_cflags": ["--no-such-flag"]}
    built = world.inline("devices", python_module(), **devices)
    return {"answer": built.answer(), "ninja": world.ninja(world.extensions / "devices")}


@case("load.extra_cuda_cflags", "load.extra_sycl_cflags", "load.with_cuda", "load.with_sycl")
def load_without_devices(world: World) -> Observed:
    devices = {"extra_cuda_cflags": ["--no-such-flag"], "extra_sycl_cflags": ["--no-such-flag"]}
    source = world.write("plain.cpp", python_module())
    built = world.load("no_devices", [source], with_cuda=False, with_sycl=False, **devices)
    return {"answer": built.answer(), "ninja": world.ninja(world.extensions / "no_devices")}


@case("load_inline.with_cuda", "load_inline.with_sycl")
def inline_without_devices(world: World) -> Observed:
    built = world.inline("no_device", python_module(), with_cuda=False, with_sycl=False)
    return {"answer": built.answer(), "ninja": world.ninja(world.extensions / "no_device")}


@case("load_inline.with_cuda", "load_inline.with_sycl", stock_path=True)
def both_devices(world: World) -> Observed:
    call = {"with_cuda": True, "with_sycl": True}
    return {"call": world.outcome(world.inline, "two_devices", python_module(), **call)}


@case(
    "load_inline.cuda_sources",
    "load_inline.with_cuda",
    stock_path=True,
    needs=("cuda_torch", "cuda_toolkit"),
)
def wrong_cuda_architecture(world: World) -> Observed:
    """Costs no nvcc: stock reads TORCH_CUDA_ARCH_LIST first (or finds no CUDA at all)."""
    os.environ["TORCH_CUDA_ARCH_LIST"] = "99.9"
    kernel = "__global__ void nothing() {}\n"
    return {
        "sources": world.outcome(
            world.inline, "cuda_sources", python_module(), cuda_sources=kernel
        ),
        "list": world.outcome(world.inline, "cuda_list", [python_module()], cuda_sources=[kernel]),
        "asked": world.outcome(world.inline, "cuda_asked", python_module(), with_cuda=True),
    }


@case("load.sources", "load.with_cuda", stock_path=True, needs=("cuda_torch", "cuda_toolkit"))
def wrong_cuda_architecture_of_files(world: World) -> Observed:
    os.environ["TORCH_CUDA_ARCH_LIST"] = "99.9"
    return {
        "sources": world.outcome(
            world.load, "cuda_file", [world.write("a.cu", "__global__ void nothing() {}\n")]
        ),
        "asked": world.outcome(
            world.load, "cuda_asked", [world.write("a.cpp", python_module())], with_cuda=True
        ),
    }


@case(
    "load_inline.sycl_sources", "load_inline.with_sycl", stock_path=True, needs=("sycl_compiler",)
)
def sycl_without_its_compiler(world: World) -> Observed:
    return {
        "sources": world.outcome(
            world.inline, "sycl_sources", python_module(), sycl_sources="int x;\n"
        ),
        "list": world.outcome(
            world.inline, "sycl_list", [python_module()], sycl_sources=["int x;\n"]
        ),
        "asked": world.outcome(world.inline, "sycl_asked", python_module(), with_sycl=True),
    }


@case("load_inline.extra_ldflags")
def own_archive(world: World) -> Observed:
    path = _archive(world, "with space/libown.a")
    folder = os.path.dirname(path)
    return {
        "path": world.outcome(
            lambda: world.inline("ar_path", _USES_OWN, extra_ldflags=[f"'{path}'"]).answer()
        ),
        "named": world.outcome(
            lambda: world.inline(
                "ar_named", _USES_OWN, extra_ldflags=[f"-L'{folder}'", "-lown"]
            ).answer()
        ),
        "order": world.outcome(
            lambda: world.inline(
                "ar_order", _USES_OWN, extra_ldflags=["-lown", f"'-L{folder}'"]
            ).answer()
        ),
    }


@case("load_inline.extra_ldflags")
def own_object(world: World) -> Observed:
    path = _own_object(world, "objects/own.o")
    built = world.inline("own_object", _USES_OWN, extra_ldflags=[path])
    again = _own_object(world, "objects/own.o", text="int parity_own() { return 6; }\n")
    second = world.inline("own_object_again", _USES_OWN, extra_ldflags=[again])
    return {"answers": [built.answer(), second.answer()]}


@case("load_inline.extra_ldflags", "load_inline.build_directory")
def object_in_the_build_directory(world: World) -> Observed:
    """Relative names in flags are relative to the build directory, where stock runs ninja."""
    _own_object(world, "out/own.o")
    folder = str(world.folder / "out")
    call = {"extra_ldflags": ["own.o"], "build_directory": folder}
    other = {"extra_ldflags": ["out/own.o"], "build_directory": folder}
    return {
        "there": world.outcome(lambda: world.inline("near_object", _USES_OWN, **call).answer()),
        "cwd": world.outcome(
            world.inline, "far_object", _USES_OWN, **other, mentions=["Error building extension"]
        ),
    }


@case("load_inline.extra_ldflags")
def shared_library_with_rpath(world: World) -> Observed:
    path = _own_object(world, "libs/libparity.so", "-shared")
    folder = os.path.dirname(path)
    found = [f"-L{folder}", "-lparity", f"-Wl,-rpath,{folder}"]
    lost = [f"-L{folder}", "-lparity"]
    return {
        "found": world.inline("rpath", _USES_OWN, extra_ldflags=found).answer(),
        "system": world.inline(
            "libm",
            python_module("PyFloat_FromDouble(y0(1))", "#include <math.h>"),
            extra_ldflags=["-lm"],
        ).answer(),
        "lost": world.outcome(
            world.inline, "no_rpath", _USES_OWN, extra_ldflags=lost, mentions=["libparity.so"]
        ),
    }


@case("load_inline.extra_ldflags")
def undefined_symbols(world: World) -> Observed:
    told = ["Error building extension 'undef_strict'", "undefined reference to `parity_own()'"]
    strict = {"extra_ldflags": ["-Wl,--no-undefined"]}
    return {
        "import": world.outcome(
            world.inline, "undef", _USES_OWN, mentions=["undefined symbol", "parity_own"]
        ),
        "link": world.outcome(world.inline, "undef_strict", _USES_OWN, **strict, mentions=told),
    }


@case("load_inline.extra_ldflags")
def missing_libraries(world: World) -> Observed:
    told = ["Error building extension", "cannot find"]
    text = python_module()
    return {
        "library": world.outcome(
            world.inline, "no_lib", text, extra_ldflags=["-lno_such_library"], mentions=told
        ),
        "file": world.outcome(
            world.inline, "no_file", text, extra_ldflags=["/nowhere/x.o"], mentions=told[:1]
        ),
        "flag": world.outcome(
            world.inline, "no_flag", text, extra_ldflags=["-Wl,--no-such-flag"], mentions=told[:1]
        ),
    }


@case("load_inline.extra_include_paths")
def include_paths(world: World) -> Observed:
    first = world.write("first/own.h", "#define ANSWER 1\n")
    world.write("second/own.h", "#define ANSWER 2\n")
    world.write("with space/own.h", "#define ANSWER 3\n")
    world.write("it's/own.h", "#define ANSWER 4\n")

    def found(name: str, *folders: str, how: str = '"own.h"') -> object:
        return _answer(world, name, before=f"#include {how}", extra_include_paths=list(folders))

    return {
        "absolute": found("inc_absolute", os.path.dirname(first)),
        "relative": found("inc_relative", "first"),
        "brackets": found("inc_brackets", "first", how="<own.h>"),
        "order": found("inc_order", "second", "first"),
        "space": found("inc_space", "with space"),
        "quote": found("inc_quote", "it's"),
        "stripped": found("inc_stripped", " first "),
        "missing": found("inc_missing", "nowhere", "second"),
        "none": found("inc_none"),
        "flag": _answer(
            world,
            "inc_flag",
            before="#include <own.h>",
            extra_cflags=[f"-I{os.path.dirname(first)}"],
        ),
    }


@case("load_inline.extra_include_paths")
def include_path_before_the_system(world: World) -> Observed:
    world.write("front/torch/extension.h", "#define ANSWER 11\n")
    world.write("front/cstdint", "#define FRONT 1\n#include_next <cstdint>\n")
    told = "#include <cstdint>\n#ifndef FRONT\n#define FRONT 0\n#endif\n"
    call = {"extra_include_paths": ["front"]}
    shadowed = world.outcome(
        lambda: world.load_inline(
            "front", python_module("PyLong_FromLong(ANSWER)"), **call
        ).answer()
    )
    return {
        "torch": shadowed,
        "standard": _answer(world, "front_std", "PyLong_FromLong(FRONT)", told, **call),
        "plain": _answer(world, "front_none", "PyLong_FromLong(FRONT)", told),
    }


@case("load_inline.build_directory")
def build_directory(world: World) -> Observed:
    folder = world.folder / "out"
    folder.mkdir()
    text = python_module()
    built = world.inline("placed_here", text, build_directory=str(folder))
    first = world.files(folder)
    other = world.inline("placed_too", text, build_directory=str(folder))
    return {
        "answers": [built.answer(), other.answer()],
        "files": [first, world.files(folder)],
        "text": (folder / "main.cpp").read_text(),
        "ninja": world.ninja(folder),
        "links": (folder / "placed_here.so").is_symlink(),
        "extensions": world.files(world.extensions),
    }


@case("load_inline.build_directory", "load.build_directory")
def build_directory_with_odd_name(world: World) -> Observed:
    seen: Observed = {}
    source = world.write("a.cpp", python_module())
    for key, name in (
        ("relative", "out"),
        ("space", "with space"),
        ("accent", "größe"),
        ("dot", "."),
    ):
        (world.folder / name).mkdir(exist_ok=True)
        inline = world.inline(f"b_{key}", python_module(), build_directory=name)
        loaded = world.load(f"c_{key}", [source], build_directory=name)
        present = [(world.folder / name / f"{letter}_{key}.so").is_file() for letter in "bc"]
        seen[key] = [inline.answer(), loaded.answer(), present]
    return seen


@case("load_inline.build_directory", "load.build_directory")
def build_directory_missing(world: World) -> Observed:
    text = python_module()
    source = world.write("a.cpp", text)
    return {
        "inline": world.outcome(
            world.inline, "nowhere", text, build_directory=str(world.folder / "nowhere")
        ),
        "load": world.outcome(
            world.load, "nowhere", [source], build_directory=str(world.folder / "nowhere")
        ),
        "file": world.outcome(world.inline, "a_file", text, build_directory=source),
        "load_file": world.outcome(world.load, "a_file", [source], build_directory=source),
        "made": (world.folder / "nowhere").exists(),
    }


@case("load_inline.build_directory")
def header_in_the_build_directory(world: World) -> Observed:
    """main.cpp lies in the build directory, so an include in quotes looks there."""
    world.write("out/own.h", "#define ANSWER 5\n")
    return {
        "answer": _answer(
            world,
            "home_header",
            before='#include "own.h"',
            build_directory=str(world.folder / "out"),
        )
    }


@case("load_inline.name")
def extensions_dir(world: World) -> Observed:
    built = world.inline("in_root", python_module())
    return {"answer": built.answer(), "files": world.files(world.extensions)}


@case("load_inline.name",
    environment={"TORCH_EXTENSIONS_DIR": None, "XDG_CACHE_HOME": "{folder}/cache"}, differences=(
    Difference("files", [],
        "without a folder that the caller named, nothing is written outside the store"),
))  # fmt: skip
def default_root(world: World) -> Observed:
    built = world.inline("in_cache", python_module())
    found = world.files(world.folder / "cache" / "torch_extensions")
    return {"answer": built.answer(), "files": [name.partition("/")[2] for name in found]}


@case(
    "load_inline.extra_cflags",
    environment={"CXX": "/usr/bin/g++", "CC": "/nowhere/cc", "MAX_JOBS": "1"},
)
def compiler_by_path(world: World) -> Observed:
    built = world.inline("by_path", python_module())
    return {"answer": built.answer(), "ninja": world.ninja(world.extensions / "by_path")}


@case("load_inline.extra_cflags", environment={"MAX_JOBS": "many"})
def environment_changes_between_calls(world: World) -> Observed:
    world.write("first/own.h", "#define ANSWER 1\n")
    world.write("second/own.h", "#define ANSWER 2\n")
    seen = []
    for folder in ("first", "second"):
        os.environ["CPATH"] = str(world.folder / folder)
        seen.append(_answer(world, f"cpath_{folder}", before="#include <own.h>"))
    del os.environ["CPATH"]
    seen.append(_answer(world, "cpath_none", before="#include <own.h>"))
    os.environ["LIBRARY_PATH"] = os.path.dirname(_archive(world, "libs/libparityown.a"))
    library = world.outcome(
        lambda: world.inline("lpath", _USES_OWN, extra_ldflags=["-lparityown"]).answer()
    )
    return {"answers": seen, "library": library}


@case("load_inline.extra_cflags", environment={"CXX": "/nowhere/g++"}, stock_path=True)
def compiler_missing(world: World) -> Observed:
    return {"call": world.outcome(world.inline, "no_compiler", python_module())}
