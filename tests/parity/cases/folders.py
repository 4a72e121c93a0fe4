"""Cases about folders: include paths, build directories, and where stock builds by default."""

from __future__ import annotations

import os

from tests.parity.case import Difference, Observed, World, answer, case, python_module


@case("load_inline.extra_include_paths")
def include_paths(world: World) -> Observed:
    first = world.write("first/own.h", "#define ANSWER 1\n")
    world.write("second/own.h", "#define ANSWER 2\n")
    world.write("with space/own.h", "#define ANSWER 3\n")
    world.write("it's/own.h", "#define ANSWER 4\n")

    def found(name: str, *folders: str, how: str = '"own.h"') -> object:
        return answer(world, name, before=f"#include {how}", extra_include_paths=list(folders))

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
        "flag": answer(
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
        "standard": answer(world, "front_std", "PyLong_FromLong(FRONT)", told, **call),
        "plain": answer(world, "front_none", "PyLong_FromLong(FRONT)", told),
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
        "answer": answer(
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
