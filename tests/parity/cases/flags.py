"""Cases about flags, include paths, libraries, build directories and the caller's environment."""

from __future__ import annotations

import os

from tests.parity.case import Observed, World, answer, case, python_module


@case("load_inline.extra_cflags")
def defines(world: World) -> Observed:
    text = "#ifndef B\n#define B 0\n#endif\n#define ANSWER (A * 10 + B)\n"
    return {
        "one": answer(world, "def_one", before=text, extra_cflags=["-DA=4"]),
        "two": answer(world, "def_two", before=text, extra_cflags=["-DA=4", "-DB=2"]),
        "apart": answer(world, "def_apart", before=text, extra_cflags=["-D", "A=4"]),
        "together": answer(world, "def_together", before=text, extra_cflags=["-DA=4 -DB=2"]),
        "spaces": answer(world, "def_spaces", before=text, extra_cflags=["  -DA=4\t"]),
        "undone": answer(world, "def_undone", before=text, extra_cflags=["-DA=4", "-DB=2", "-UB"]),
        "none": answer(world, "def_none", before=text, extra_cflags=[]),
        "empty": answer(world, "def_empty", before=text, extra_cflags=["", "-DA=1"]),
    }


@case("load_inline.extra_cflags")
def quoted_flags(world: World) -> Observed:
    def text(name: str, flag: str) -> object:
        return answer(world, name, "PyUnicode_FromString(TEXT)", extra_cflags=[flag])

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
        "dollar": answer(world, "shell_dollar", extra_cflags=["-DANSWER=$$PARITY_VALUE"]),
        "command": answer(world, "shell_command", extra_cflags=["-DANSWER=`echo 9`"]),
        "ninja": answer(world, "shell_ninja", extra_cflags=["-DANSWER=$("]),
        "file": answer(
            world, "shell_file", extra_cflags=["@" + world.write("flags.txt", "-DANSWER=3")]
        ),
    }


@case("load_inline.extra_cflags")
def standard_given_twice(world: World) -> Observed:
    def standard(name: str, *flags: str) -> object:
        return answer(world, name, "PyLong_FromLong(__cplusplus)", extra_cflags=list(flags))

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
        "none": answer(world, "opt_none", before=text),
        "two": answer(world, "opt_two", before=text, extra_cflags=["-O2"]),
        "last": answer(world, "opt_last", before=text, extra_cflags=["-O2", "-O0"]),
        "native": answer(
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


@case(
    "load_inline.extra_cflags",
    environment={"CXX": "/usr/bin/g++", "CC": "/nowhere/cc", "MAX_JOBS": "1"},
)
def compiler_by_path(world: World) -> Observed:
    built = world.inline("by_path", python_module())
    return {"answer": built.answer(), "ninja": world.ninja(world.extensions / "by_path")}


@case("load_inline.extra_cflags", environment={"CXX": "/nowhere/g++"}, stock_path=True)
def compiler_missing(world: World) -> Observed:
    return {"call": world.outcome(world.inline, "no_compiler", python_module())}
