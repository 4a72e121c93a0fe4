"""Cases about names, errors, and more than one call in a process."""

from __future__ import annotations

import os

from tests.parity.case import Difference, Observed, World, case, python_module


@case("load_inline.cpp_sources", differences=(
    Difference("call", {
        "raises": "RuntimeError",
        "mentions": {"Error building extension 'syntax'": True, "main.cpp:2:": False,
            "error: ": True,
                     "int broken( { return 1; }": True},
    }, "the error is told in the lines of cpp_sources[0]"),
    Difference("files", [], "only what was built is placed in the build directory"),
))  # fmt: skip
def syntax_error(world: World) -> Observed:
    text = python_module(before="int broken( { return 1; }")
    told = [
        "Error building extension 'syntax'",
        "main.cpp:2:",
        "error: ",
        "int broken( { return 1; }",
    ]
    return {
        "call": world.outcome(world.inline, "syntax", text, mentions=told),
        "files": world.files(world.extensions)[:2],
    }


@case("load_inline.functions")
def error_below_torch_headers(world: World) -> Observed:
    text = "at::Tensor broken(at::Tensor x) { return x.no_such_method(); }\n"
    told = ["Error building extension 'below'", "error: ", "no_such_method"]
    return {
        "call": world.outcome(world.load_inline, "below", text, functions=["broken"], mentions=told)
    }


@case("load_inline.cpp_sources")
def missing_header(world: World) -> Observed:
    told = ["Error building extension 'no_header'", "fatal error: ", "no/such.h"]
    return {
        "call": world.outcome(world.inline, "no_header", '#include "no/such.h"\n', mentions=told)
    }


@case("load_inline.cpp_sources", "load.sources", differences=(
    Difference("inline", ["RuntimeError", "RuntimeError", True],
        "stock looks for the module of a build that failed"),
    Difference("load", ["RuntimeError", "RuntimeError", True],
        "stock looks for the module of a build that failed"),
))  # fmt: skip
def the_same_error_twice(world: World) -> Observed:
    text = python_module(before="int broken( { return 1; }")
    source = world.write("broken.cpp", text)

    def twice(call: object, *arguments: object) -> list[object]:
        seen = [world.outcome(call, *arguments, mentions=["int broken("]) for _ in range(2)]  # type: ignore[arg-type]
        return [seen[0]["raises"], seen[1]["raises"], seen[1]["mentions"]["int broken("]]

    return {
        "inline": twice(world.inline, "again", text),
        "load": twice(world.load, "load_again", [source]),
    }


@case("load_inline.cpp_sources", "load.sources", differences=(
    Difference("names", ["mended", "load_mended"], "a build that failed has used no name"),
))  # fmt: skip
def error_mended(world: World) -> Observed:
    world.outcome(world.inline, "mended", "#error not yet\n")
    built = world.inline("mended", python_module())
    source = world.write("mend.cpp", "#error not yet\n")
    world.outcome(world.load, "load_mended", [source])
    world.write("mend.cpp", python_module())
    loaded = world.load("load_mended", [source])
    return {
        "answers": [built.answer(), loaded.answer()],
        "names": [built.__name__, loaded.__name__],
    }


@case("load_inline.name", differences=(
    Difference("names", ["ab", "ab_v1", "ab", "ab_v2"],
        "going back to an earlier text needs no third build"),
))  # fmt: skip
def there_and_back(world: World) -> Observed:
    built = [
        world.inline("ab", python_module(f"PyLong_FromLong({value})")) for value in (1, 2, 1, 3)
    ]
    return {
        "answers": [module.answer() for module in built],
        "names": [module.__name__ for module in built],
    }


@case("load_inline.name")
def the_same_call_again(world: World) -> Observed:
    text = python_module()
    first = world.inline("same", text)
    second = world.inline("same", text)
    return {
        "first": world.outcome(lambda: first),
        "second": world.outcome(lambda: second),
        "same": second is first,
    }


@case("load_inline.name", "load.name")
def other_arguments_other_module(world: World) -> Observed:
    text = python_module("PyLong_FromLong(A)", "#ifndef A\n#define A 0\n#endif")
    source = world.write("other.cpp", text)
    built = [world.inline("other", text), world.inline("other", text, extra_cflags=["-DA=1"])]
    built.append(world.load("other", [source], extra_cflags=["-DA=2"]))
    built.append(world.load("fresh", [source], extra_cflags=["-DA=3"]))
    return {
        "answers": [module.answer() for module in built],
        "names": [module.__name__ for module in built],
    }


@case("load_inline.name")
def two_extensions_keep_their_own(world: World) -> Observed:
    text = python_module("PyLong_FromLong(++count)", "static int count = 0;")
    first, second = world.inline("own_one", text), world.inline("own_two", text)
    return {
        "counts": [first.answer(), first.answer(), second.answer()],
        "names": [first.__name__, second.__name__],
    }


@case("load_inline.name")
def name_of_another_module(world: World) -> Observed:
    pybind = '#include <pybind11/pybind11.h>\nPYBIND11_MODULE(another, m) { m.attr("x") = 1; }\n'
    return {
        "python": world.outcome(
            world.inline, "mine", python_module(init="another"), mentions=["PyInit_mine"]
        ),
        "pybind": world.outcome(world.inline, "mine_too", pybind, mentions=["PyInit_mine_too"]),
    }


@case("load_inline.name", "load.name", stock_path=True)
def names_that_are_no_identifiers(world: World) -> Observed:
    told = ["Error building extension", "PyInit_"]
    dotted = python_module(init="last")
    return {
        "hyphen": world.outcome(world.inline, "my-ext", python_module(), mentions=told),
        "digit": world.outcome(world.inline, "1st", python_module(), mentions=told),
        "keyword": world.outcome(
            lambda: world.inline("class", python_module()).answer(), mentions=told
        ),
        "dotted": world.outcome(lambda: world.inline("pack.last", dotted).answer(), mentions=told),
        "space": world.outcome(world.inline, "two words", python_module(), mentions=told[:1]),
        "shell": world.outcome(world.inline, "a;echo b", python_module(), mentions=told[:1]),
        "load": world.outcome(
            world.load, "my-load", [world.write("a.cpp", python_module())], mentions=told
        ),
    }


@case("load_inline.name", stock_path=True, differences=(
    Difference("slash", {"raises": "RuntimeError"},
        "a name with a slash would name files outside its own folder"),
))  # fmt: skip
def names_that_are_no_file_names(world: World) -> Observed:
    return {
        "long": world.outcome(world.inline, "n" * 300, python_module()),
        "null": world.outcome(world.inline, "a\0b", python_module()),
        "slash": world.outcome(world.inline, "sub/ext", python_module(init="ext")),
    }


@case("load_inline.name")
def name_beyond_ascii(world: World) -> Observed:
    text = python_module(init="U_gre_uoa").replace("JOIN(PyInit_, U_gre_uoa)", "PyInitU_gre_gka9m")
    told = ["Error building extension", "PyInitU_"]
    return {"call": world.outcome(world.inline, "größe", text, mentions=told)}


@case("load_inline.name")
def nothing_else_changes(world: World) -> Observed:
    """A call leaves the working directory, the environment and the signal handlers of its process
    alone.
    """
    import signal

    def around() -> list[object]:
        handlers = [
            signal.getsignal(number)
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)
        ]
        return [
            os.getcwd(),
            dict(os.environ),
            [str(handler) for handler in handlers],
            os.umask(os.umask(0o22)),
        ]

    before = around()
    world.inline("quiet", python_module())
    after = around()
    return {"same": [one == other for one, other in zip(before, after, strict=True)]}
