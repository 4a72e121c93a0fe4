"""Cases about the interface of ``load_inline``: sources, headers, libraries, other arguments."""

from __future__ import annotations

from tests.parity.case import (
    Difference,
    Observed,
    World,
    captured,
    case,
    library,
    made,
    mentions,
    python_module,
)

_PYBIND = "#include <pybind11/pybind11.h>\n"
_ADD = _PYBIND + "int add(int a, int b) { return a + b; }\n"


@case("load_inline.cpp_sources")
def several_texts(world: World) -> Observed:
    texts = ["#define ONE 1", "", "#define TWO (ONE + 1)\n", python_module("PyLong_FromLong(TWO)")]
    built = world.inline("texts", texts, build_directory=made(world, "out"))
    return {"answer": built.answer(), "text": (world.folder / "out/main.cpp").read_text()}


@case("load_inline.cpp_sources", stock_path=True)
def cpp_sources_of_other_types(world: World) -> Observed:
    return {
        "tuple": world.outcome(lambda: world.load_inline("as_tuple", ("int x;",), functions=["x"])),
        "none": world.outcome(lambda: world.load_inline("as_none", None)),
        "bytes": world.outcome(lambda: world.load_inline("as_bytes", [b"int x;"])),
        "number": world.outcome(lambda: world.load_inline("as_number", [3])),
    }


@case("load_inline.cpp_sources", "load_inline.no_implicit_headers", stock_path=True)
def cpp_sources_as_tuple(world: World) -> Observed:
    built = world.load_inline("tuple_ok", (python_module(),), no_implicit_headers=True)
    return {"answer": built.answer()}


@case("load_inline.cpp_sources")
def nothing_to_compile(world: World) -> Observed:
    return {
        "list": world.outcome(world.inline, "empty_list", [], mentions=["PyInit_empty_list"]),
        "text": world.outcome(world.inline, "empty_text", "", mentions=["PyInit_empty_text"]),
        "blank": world.outcome(
            world.inline, "empty_blank", "  \n", mentions=["PyInit_empty_blank"]
        ),
    }


@case("load_inline.cpp_sources")
def text_beyond_ascii(world: World) -> Observed:
    built = world.inline(
        "texte", python_module('PyUnicode_FromString("größe 尺寸 \\u00b1")', before="// größe 尺寸")
    )
    lines = world.inline("lines", python_module("PyLong_FromLong(__LINE__)").replace("\n", "\r\n"))
    return {
        "answer": built.answer(),
        "crlf": lines.answer(),
        "surrogate": world.outcome(world.inline, "surrogate", "// \udc80\n" + python_module()),
    }


@case("load_inline.cpp_sources", "load_inline.functions", "load_inline.extra_ldflags", differences=(
    Difference("sources", 1, "stock appends its own lines to the caller's list"),
    Difference("ldflags", ["-Wl,-O1"], "stock appends its own flags to the caller's list"),
))  # fmt: skip
def the_callers_lists(world: World) -> Observed:
    sources, functions, ldflags, cflags = [_ADD], ["add"], ["-Wl,-O1"], ["-DX=1"]
    call = {"functions": functions, "extra_ldflags": ldflags, "extra_cflags": cflags}
    built = world.inline("lists", sources, **call, with_pytorch_error_handling=False)
    kept = {"functions": functions, "cflags": cflags}
    return {
        "sum": built.add(1, 2),
        "sources": len(sources),
        "ldflags": len(ldflags) and world.plain(_short(ldflags)),
    } | kept


def _short(flags: list[str]) -> list[str]:
    return ["-L<torch>" if flag.startswith("-L") else flag for flag in flags]


@case("load_inline.no_implicit_headers")
def headers_not_implied(world: World) -> Observed:
    told = ["Error building extension 'bare'", "error: "]
    tensor = "at::Tensor same(at::Tensor x) { return x; }\n"
    call = {"functions": ["same"], "no_implicit_headers": True}
    built = world.load_inline(
        "bare_ok", python_module(), no_implicit_headers=True, build_directory=made(world, "out")
    )
    return {
        "tensor": world.outcome(lambda: world.load_inline("bare", tensor, **call), mentions=told),
        "answer": built.answer(),
        "text": (world.folder / "out/main.cpp").read_text(),
    }


@case("load_inline.no_implicit_headers")
def headers_implied(world: World) -> Observed:
    text = "at::Tensor same(at::Tensor x) { return x; }\n"
    folder = made(world, "out")
    built = world.load_inline(
        "implied", [text], functions=["same"], no_implicit_headers=False, build_directory=folder
    )
    import torch

    return {
        "same": built.same(torch.arange(3)).tolist(),
        "text": (world.folder / "out/main.cpp").read_text(),
    }


@case("load_inline.use_pch")
def use_pch(world: World) -> Observed:
    text = "int64_t size(at::Tensor x) { return x.numel(); }\n"
    import torch

    try:
        built = world.load_inline("with_pch", text, functions=["size"], use_pch=True)
    finally:
        world.outcome(
            world.load_inline, "without_pch", "#error stop\n"
        )  # makes stock remove the header it left
    return {"size": built.size(torch.ones(2, 3)), "doc": built.size.__doc__}


@case("load_inline.is_python_module")
def library_with_operators(world: World) -> Observed:
    import torch

    text = """
    at::Tensor thrice(const at::Tensor& x) { return x * 3; }
    TORCH_LIBRARY(parity_inline, m) {
      m.def("thrice(Tensor x) -> Tensor", &thrice);
      m.def("next(int n=1) -> int", [](int64_t n) { return n + 1; });
    }
    """
    with captured() as said:
        result = world.load_inline("inline_ops", text, is_python_module=False)
    operators = torch.ops.parity_inline
    return {
        "result": _described(library(result, "inline_ops")),
        "thrice": operators.thrice(torch.ones(2)).tolist(),
        "next": [operators.next(), operators.next(4)],
        "schemas": [str(operators.thrice.default._schema), str(operators.next.default._schema)],
        "loaded": [
            path
            for path in map(_described, torch.ops.loaded_libraries)
            if "inline_ops" in path["name"]
        ],
        "said": said[0],
    }


@case("load_inline.is_python_module")
def library_without_a_module(world: World) -> Observed:
    import ctypes

    result = world.inline(
        "plain_lib", 'extern "C" int parity_answer() { return 42; }\n', is_python_module=False
    )
    result = library(result, "plain_lib")
    return {"result": _described(result), "answer": ctypes.CDLL(result).parity_answer()}


def _described(path: object) -> Observed:
    from pathlib import Path

    assert isinstance(path, str)
    return {
        "name": Path(path).name,
        "absolute": path.startswith("/"),
        "exists": Path(path).is_file(),
    }


@case("load_inline.verbose")
def verbose(world: World) -> Observed:
    with captured() as said:
        built = world.inline("talks", python_module(before="#warning parity warns"), verbose=True)
    patterns = [
        "-DTORCH_EXTENSION_NAME=talks",
        r"-c \S*main\.cpp",
        r"-shared",
        r"-o talks\.so",
        "parity warns",
    ]
    with captured() as quiet:
        world.inline("silent", python_module(before="#warning parity warns"), verbose=False)
    return {"answer": built.answer(), "said": mentions(said[0], *patterns), "quiet": quiet[0]}


@case("load_inline.verbose")
def verbose_failure(world: World) -> Observed:
    told = ["Error building extension 'fails_aloud'"]
    with captured() as said:
        call = world.outcome(
            world.inline, "fails_aloud", "#error parity fails\n", verbose=True, mentions=told
        )
    return {
        "call": call,
        "said": mentions(said[0], "-DTORCH_EXTENSION_NAME=fails_aloud", "parity fails"),
    }


@case("load_inline.keep_intermediates")
def keep_intermediates(world: World) -> Observed:
    kept = world.inline(
        "kept", python_module(), keep_intermediates=True, build_directory=made(world, "kept")
    )
    gone = world.inline(
        "gone", python_module(), keep_intermediates=False, build_directory=made(world, "gone")
    )
    answers = [kept.answer(), gone.answer()]
    return {
        "answers": answers,
        "files": [world.files(world.folder / name) for name in ("kept", "gone")],
    }


@case("load_inline.gil_not_used")
def gil_not_used(world: World) -> Observed:
    call = {"functions": ["add"], "with_pytorch_error_handling": False, "gil_not_used": True}
    built = world.inline("free", _ADD, **call, build_directory=made(world, "out"))
    return {"sum": built.add(1, 2), "text": (world.folder / "out/main.cpp").read_text()}


@case("load_inline.name")
def inline_by_position(world: World) -> Observed:
    """Every argument by position, in the order of this torch (SYCL came in 2.7, no_implicit_headers
    in 2.9).
    """
    sources = (
        _PYBIND + '#include "own.h"\nint add(int a, int b) { return a + b + OWN + DEFINED; }\n'
    )
    world.write("include/own.h", "#define OWN 100\n")
    sycl = "with_sycl" in world.known["load_inline"]
    before = [None] if sycl else []
    flags: list[list[str]] = [[]] if sycl else []
    arguments = [
        "placed", sources, None, *before, ["add"], ["-DDEFINED=1000"], [], *flags, ["-Wl,-O1"],
        ["include"], made(world, "out"), False, None, *before, True, False, True, False,
    ]  # fmt: skip
    if "no_implicit_headers" in world.known["load_inline"]:
        arguments.append(True)
    else:
        world.write("include/torch/extension.h", "")
    built = world.load_inline(*arguments)
    return {"sum": built.add(1, 2), "ninja": world.ninja(world.folder / "out")} | world.outcome(
        lambda: built
    )


@case("load_inline.name", stock_path=True)
def wrong_arguments(world: World) -> Observed:
    return {
        "unknown": world.outcome(lambda: world.load_inline("x", "", nonsense=1)),
        "no_sources": world.outcome(lambda: world.load_inline("x")),
        "nothing": world.outcome(lambda: world.load_inline()),
        "twice": world.outcome(lambda: world.load_inline("x", "", cpp_sources="")),
        "load_unknown": world.outcome(lambda: world.load("x", [], nonsense=1)),
        "load_inline_only": world.outcome(lambda: world.load("x", [], functions=["a"])),
        "name": world.outcome(lambda: world.load_inline(3, python_module())),
        "load_name": world.outcome(lambda: world.load(None, [])),
    }
