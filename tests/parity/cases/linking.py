"""Cases about what a call links: objects, archives, libraries."""

from __future__ import annotations

import os
import subprocess

from tests.parity.case import Observed, World, answer, case, python_module

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


@case("load_inline.extra_cflags", environment={"MAX_JOBS": "many"})
def environment_changes_between_calls(world: World) -> Observed:
    world.write("first/own.h", "#define ANSWER 1\n")
    world.write("second/own.h", "#define ANSWER 2\n")
    seen = []
    for folder in ("first", "second"):
        os.environ["CPATH"] = str(world.folder / folder)
        seen.append(answer(world, f"cpath_{folder}", before="#include <own.h>"))
    del os.environ["CPATH"]
    seen.append(answer(world, "cpath_none", before="#include <own.h>"))
    os.environ["LIBRARY_PATH"] = os.path.dirname(_archive(world, "libs/libparityown.a"))
    library = world.outcome(
        lambda: world.inline("lpath", _USES_OWN, extra_ldflags=["-lparityown"]).answer()
    )
    return {"answers": seen, "library": library}
