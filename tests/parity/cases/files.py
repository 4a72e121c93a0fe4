"""Cases about ``load``: sources on disk, standalone programs, libraries, and what happens when
files change.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests.parity.case import (
    Difference,
    Observed,
    World,
    captured,
    case,
    library,
    mentions,
    python_module,
)

_MAIN = """
#include <cstdio>
int main(int argc, char** argv) { \
std::printf("hello %s\\n", argc > 1 ? argv[1] : "nobody"); return argc; }
"""


@case("load.sources")
def two_sources(world: World) -> Observed:
    first = world.write("a/first.cpp", python_module("PyLong_FromLong(second())", "int second();"))
    second = world.write("b/second.cc", "int second() { return 2; }\n")
    sources = [first, second]
    built = world.load("two", sources)
    folder = world.extensions / "two"
    return {
        "answer": built.answer(),
        "files": world.files(folder),
        "ninja": world.ninja(folder),
        "kept": len(sources),
    }


@case("load.sources")
def one_source_as_text(world: World) -> Observed:
    built = world.load("single", world.write("single.cpp", python_module()))
    return {"answer": built.answer()} | world.outcome(lambda: built)


@case("load.sources")
def sources_relative_to_the_working_directory(world: World) -> Observed:
    world.write("src/near.cpp", python_module())
    world.write("other/elsewhere.cpp", python_module("PyLong_FromLong(7)"))
    near = world.load("near", ["src/near.cpp"])
    os.chdir(world.folder / "src")
    elsewhere = world.load("elsewhere", ["../other/elsewhere.cpp"])
    lines = [
        line for line in world.ninja(world.extensions / "elsewhere") if line.startswith("build ")
    ]
    return {
        "answers": [near.answer(), elsewhere.answer()],
        "cwd": world.plain(os.getcwd()),
        "lines": lines,
    }


@case("load.sources", stock_path=True)
def sources_as_paths(world: World) -> Observed:
    path = Path(world.write("path.cpp", python_module()))
    return {
        "list": world.outcome(lambda: world.load("path_list", [path]).answer()),
        "tuple": world.outcome(lambda: world.load("path_tuple", (str(path),)).answer()),
        "alone": world.outcome(lambda: world.load("path_alone", path).answer()),
        "bytes": world.outcome(lambda: world.load("path_bytes", [os.fsencode(path)]).answer()),
        "number": world.outcome(lambda: world.load("path_number", [3])),
        "none": world.outcome(lambda: world.load("path_none", None)),
    }


@case("load.sources")
def headers_beside_the_sources(world: World) -> Observed:
    world.write("src/own.h", '#include "deep/deeper.h"\n')
    world.write("src/deep/deeper.h", "#define OWN 17\n")
    built = world.load(
        "beside",
        [world.write("src/beside.cpp", python_module("PyLong_FromLong(OWN)", '#include "own.h"'))],
    )
    return {"answer": built.answer()}


@case("load.sources")
def sources_with_the_same_base_name(world: World) -> Observed:
    first = world.write("a/same.cpp", python_module("PyLong_FromLong(second())", "int second();"))
    second = world.write("b/same.cpp", "int second() { return 2; }\n")
    told = ["Error building extension 'same'", "same.o"]
    return {
        "two": world.outcome(world.load, "same", [first, second], mentions=told),
        "one": world.outcome(
            world.load, "same_one", [first, first], mentions=["Error building extension 'same_one'"]
        ),
    }


@case("load.sources")
def sources_with_other_suffixes(world: World) -> Observed:
    told = ["Error building extension"]
    c = python_module("PyLong_FromLong(sizeof('a'))")  # 1 in C++, 4 in C
    return {
        "c": world.outcome(
            lambda: world.load("suffix_c", [world.write("a.c", c)]).answer(), mentions=told
        ),
        "cxx": world.outcome(
            lambda: world.load("suffix_cxx", [world.write("b.cxx", c)]).answer(), mentions=told
        ),
        "upper": world.outcome(
            lambda: world.load("suffix_C", [world.write("d.C", c)]).answer(), mentions=told
        ),
        "txt": world.outcome(world.load, "suffix_txt", [world.write("e.txt", c)], mentions=told),
        "none": world.outcome(world.load, "suffix_none", [world.write("f", c)], mentions=told),
    }


@case("load.sources")
def source_paths_with_odd_characters(world: World) -> Observed:
    text = python_module()
    return {
        "space": world.outcome(world.load, "odd_space", [world.write("with space/a b.cpp", text)]),
        "accent": world.load("odd_accent", [world.write("größe/ä.cpp", text)]).answer(),
        "quote": world.load("odd_quote", [world.write("it's/x.cpp", text)]).answer(),
        "plus": world.load("odd_plus", [world.write("c++/a+b.cpp", text)]).answer(),
    }


@case("load.sources")
def sources_in_other_encodings(world: World) -> Observed:
    utf8 = python_module('PyUnicode_FromString("größe")', "// 尺寸").encode()
    latin = python_module('PyBytes_FromString("gr@e")', "// caf@").encode().replace(b"@", b"\xf6")
    crlf = python_module("PyLong_FromLong(__LINE__)").replace("\n", "\r\n").encode()
    bom = b"\xef\xbb\xbf" + python_module().encode()
    return {
        "utf8": world.load("enc_utf8", [world.write("utf8.cpp", utf8)]).answer(),
        "latin": world.load("enc_latin", [world.write("latin.cpp", latin)]).answer().hex(),
        "crlf": world.load("enc_crlf", [world.write("crlf.cpp", crlf)]).answer(),
        "bom": world.load("enc_bom", [world.write("bom.cpp", bom)]).answer(),
    }


@case("load.sources")
def broken_source_in_another_encoding(world: World) -> Observed:
    path = world.write(
        "broken.cpp", b'#include <Python.h>\n#line 70 "pretend.cpp"\nint x = "caf\xe9";\n'
    )
    told = ["Error building extension 'enc_broken'", "pretend.cpp:70", "error: "]
    return {"call": world.outcome(world.load, "enc_broken", [path], mentions=told)}


@case("load.sources")
def no_sources(world: World) -> Observed:
    return {"empty": world.outcome(world.load, "nothing", [])}


@case("load.sources")
def sources_that_do_not_exist(world: World) -> Observed:
    return {
        "file": world.outcome(world.load, "gone", ["gone.cpp"], mentions=["gone.cpp"]),
        "folder": world.outcome(world.load, "folder", [str(world.folder)]),
        "second": world.outcome(
            world.load, "half", [world.write("half.cpp", python_module()), "gone.cpp"]
        ),
    }


@case("load.is_standalone", "load.is_python_module")
def standalone_program(world: World) -> Observed:
    folder = world.folder / "out"
    folder.mkdir()
    source = world.write("hello.cpp", _MAIN)
    call = {"is_python_module": False, "is_standalone": True}
    path = world.load("hello", [source], build_directory=str(folder), extra_cflags=["-O1"], **call)
    ran = subprocess.run([path, "you"], capture_output=True, text=True, check=False)
    return {
        "path": world.plain(path),
        "ran": [ran.returncode, ran.stdout],
        "files": world.files(folder),
        "ninja": world.ninja(folder),
    }


@case("load.is_standalone")
def standalone_program_with_torch(world: World) -> Observed:
    text = (
        "#include <torch/types.h>\n#include <iostream>\n"
        "int main() { std::cout << at::ones({2, 3}).sum().item<int>(); }\n"
    )
    source = world.write("sums.cpp", text)
    path = world.load("sums", [source], is_python_module=False, is_standalone=True)
    ran = subprocess.run([path], capture_output=True, text=True, check=False)
    return {"name": Path(path).name, "ran": [ran.returncode, ran.stdout]}


@case("load.is_standalone", "load.is_python_module")
def standalone_module(world: World) -> Observed:
    source = world.write("both.cpp", _MAIN)
    told = ["mutually exclusive"]
    return {
        "both": world.outcome(world.load, "both", [source], is_standalone=True, mentions=told),
        "said": world.outcome(
            world.load, "b", source, is_python_module=True, is_standalone=True, mentions=told
        ),
    }


@case("load.is_python_module")
def library_from_files(world: World) -> Observed:
    import ctypes

    source = world.write("lib.cpp", 'extern "C" int from_files() { return 42; }\n')
    path = library(world.load("lib_files", [source], is_python_module=False), "lib_files")
    described = {
        "name": Path(path).name,
        "absolute": os.path.isabs(path),
        "exists": os.path.isfile(path),
    }
    return {"path": described, "answer": ctypes.CDLL(path).from_files()}


@case("load.is_python_module", "load.sources")
def operators_from_files(world: World) -> Observed:
    import torch

    text = """
    #include <torch/extension.h>
    at::Tensor half(const at::Tensor& x);
    TORCH_LIBRARY(parity_files, m) { m.def("half", &half); }
    """
    kernel = (
        "#include <ATen/core/Tensor.h>\nat::Tensor half(const at::Tensor& x) { return x / 2; }\n"
    )
    path = world.load(
        "file_ops",
        [world.write("ops.cpp", text), world.write("half.cpp", kernel)],
        is_python_module=False,
    )
    return {
        "name": Path(path).name,
        "half": torch.ops.parity_files.half(torch.ones(2)).tolist(),
        "schema": str(torch.ops.parity_files.half.default._schema),
    }


@case("load.verbose")
def load_verbose(world: World) -> Observed:
    sources = [world.write("one.cpp", python_module()), world.write("two.cpp", "int two;\n")]
    with captured() as said:
        world.load("load_talks", sources, verbose=True)
    patterns = [
        "-DTORCH_EXTENSION_NAME=load_talks",
        r"-c \S*/one\.cpp",
        r"-c \S*/two\.cpp",
        "-shared",
    ]
    return {"said": mentions(said[0], *patterns)}


@case("load.keep_intermediates")
def load_keep_intermediates(world: World) -> Observed:
    built = world.load(
        "load_gone", [world.write("one.cpp", python_module())], keep_intermediates=False
    )
    return {"answer": built.answer(), "files": world.files(world.extensions / "load_gone")}


@case("load.name")
def load_by_position(world: World) -> Observed:
    """Every argument by position, in the order of this torch (SYCL came in 2.7)."""
    world.write("include/own.h", "#define OWN 100\n")
    value = "PyLong_FromLong(OWN + DEFINED)"
    source = world.write("placed.cpp", python_module(value, '#include "own.h"'))
    (world.folder / "out").mkdir()
    sycl = "with_sycl" in world.known["load"]
    flags: list[list[str]] = [[]] if sycl else []
    device = [None] if sycl else []
    arguments = [
        "load_placed", [source], ["-DDEFINED=1000"], [], *flags, ["-Wl,-O1"], ["include"],
        str(world.folder / "out"), False, None, *device, True, False, True,
    ]  # fmt: skip
    built = world.load(*arguments)
    return {"answer": built.answer(), "ninja": world.ninja(world.folder / "out")} | world.outcome(
        lambda: built
    )


@case(
    "load.name",
    "load.sources",
    "load.extra_cflags",
    "load.extra_ldflags",
    "load.extra_include_paths",
)
def load_by_name(world: World) -> Observed:
    world.write("include/own.h", "#define OWN 100\n")
    value = "PyLong_FromLong(OWN + DEFINED)"
    source = world.write("named.cpp", python_module(value, '#include "own.h"'))
    built = world.load(
        extra_include_paths=["include"], extra_ldflags=["-Wl,-O1"], extra_cflags=["-DDEFINED=1000"],
        sources=source, name="named", build_directory=None, verbose=False, is_python_module=True,
        is_standalone=False, keep_intermediates=True, with_cuda=None, extra_cuda_cflags=None,
    )  # fmt: skip
    return {"answer": built.answer(), "ninja": world.ninja(world.extensions / "named")}


@case("load.sources", differences=(
    Difference("answers", [1, 2, 1], "stock looks at headers only in a new process"),
))  # fmt: skip
def header_edited(world: World) -> Observed:
    source = world.write("head.cpp", python_module("PyLong_FromLong(OWN)", '#include "own.h"'))
    built = []
    for value in (1, 2, 1):
        world.write("own.h", f"#define OWN {value}\n")
        built.append(world.load("head", [source]))
    return {
        "answers": [module.answer() for module in built],
        "names": [module.__name__ for module in built],
    }


@case("load.sources", differences=(
    Difference("names", ["edit", "edit_v1", "edit"],
        "going back to an earlier text needs no third build"),
))  # fmt: skip
def source_edited(world: World) -> Observed:
    built = []
    for value in (1, 2, 1):
        source = world.write("edit.cpp", python_module(f"PyLong_FromLong({value})"))
        built.append(world.load("edit", [source]))
    return {
        "answers": [module.answer() for module in built],
        "names": [module.__name__ for module in built],
    }
