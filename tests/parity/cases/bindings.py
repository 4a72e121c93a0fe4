"""Cases about how ``load_inline`` binds: functions, the caller's own module, the handling of
errors, containers.
"""

from __future__ import annotations

from tests.parity.case import Observed, World, case, made

_PYBIND = "#include <pybind11/pybind11.h>\n"
_ADD = _PYBIND + "int add(int a, int b) { return a + b; }\n"
_TENSORS = """
torch::Tensor twice(torch::Tensor x) { return x + x; }
double total(const std::vector<at::Tensor>& xs) {
  double sum = 0;
  for (auto& x : xs) sum += x.sum().item<double>();
  return sum;
}
std::tuple<at::Tensor, std::optional<at::Tensor>> pair(\
at::Tensor x, std::optional<at::Tensor> y) { return {x, y}; }
"""
_ERRORS = """
void check(bool ok) { TORCH_CHECK(ok, "checked: ", 7); }
void check_index() { TORCH_CHECK_INDEX(false, "index"); }
void check_value() { TORCH_CHECK_VALUE(false, "value"); }
void check_type() { TORCH_CHECK_TYPE(false, "type"); }
void check_todo() { TORCH_CHECK_NOT_IMPLEMENTED(false, "todo"); }
void runtime() { throw std::runtime_error("runtime"); }
void range() { throw std::out_of_range("range"); }
void argument() { throw std::invalid_argument("argument"); }
void memory() { throw std::bad_alloc(); }
void python() { throw pybind11::key_error("key"); }
void number() { throw 3; }
void shapes(at::Tensor x) { x.view({5}); }
"""
_ERROR_NAMES = [
    "check_index", "check_value", "check_type", "check_todo", "runtime", "range", "argument",
    "memory", "python", "number",
]  # fmt: skip


@case("load_inline.functions")
def functions_with_torch_headers(world: World) -> Observed:
    import torch

    built = world.load_inline("fn_torch", _TENSORS, functions=["twice", "total", "pair"])
    x = torch.ones(2, 3)
    return {
        "docs": [built.twice.__doc__, built.total.__doc__, built.pair.__doc__],
        "twice": built.twice(x).tolist(),
        "total": built.total([x, x.double()]),
        "pair": [part if part is None else part.tolist() for part in built.pair(x, None)],
        "keyword": world.outcome(built.twice, x=x),
        "wrong": world.outcome(built.twice, 3, mentions=["incompatible function arguments"]),
        "none": world.outcome(built.twice, None),
        "grad": built.twice(x.clone().requires_grad_()).requires_grad,
    }


@case("load_inline.cpp_sources", "load_inline.with_pytorch_error_handling")
def errors_handled_by_pytorch(world: World) -> Observed:
    names = ["check", *_ERROR_NAMES, "shapes"]
    built = world.load_inline(
        "errors_torch", [_ERRORS], functions=names, with_pytorch_error_handling=True
    )
    return _provoke(world, built)


@case("load_inline.cpp_sources", "load_inline.with_pytorch_error_handling")
def errors_handled_by_pybind(world: World) -> Observed:
    names = ["check", *_ERROR_NAMES, "shapes"]
    built = world.load_inline(
        "errors_plain", [_ERRORS], functions=names, with_pytorch_error_handling=False
    )
    return _provoke(world, built)


def _provoke(world: World, built: object) -> Observed:
    import torch

    seen = {
        name: world.outcome(getattr(built, name), mentions=[name.split("_")[-1]])
        for name in _ERROR_NAMES
    }
    seen["check"] = world.outcome(built.check, False, mentions=["checked: 7"])  # type: ignore[attr-defined]
    seen["fine"] = world.outcome(built.check, True)  # type: ignore[attr-defined]
    seen["shapes"] = world.outcome(built.shapes, torch.ones(3), mentions=["shape '[5]'"])  # type: ignore[attr-defined]
    return seen


@case("load_inline.functions", "load_inline.with_pytorch_error_handling")
def errors_of_plain_pybind(world: World) -> Observed:
    text = (
        _PYBIND
        + "#include <stdexcept>\n"
        + "".join(line + "\n" for line in _ERRORS.split("\n") if "throw" in line)
    )
    names = [name for name in _ERROR_NAMES if not name.startswith("check")]
    built = world.inline("errors_cheap", text, functions=names, with_pytorch_error_handling=False)
    return {name: world.outcome(getattr(built, name), mentions=[name]) for name in names}


@case("load_inline.functions")
def functions_as_text(world: World) -> Observed:
    built = world.inline("fn_text", _ADD, functions="add", with_pytorch_error_handling=False)
    return {"sum": built.add(2, 3), "doc": built.add.__doc__, "names": _public(built)}


@case("load_inline.functions")
def functions_as_list(world: World) -> Observed:
    text = _ADD + "int neg(int a) { return -a; }\nvoid hidden() {}\n"
    built = world.inline(
        "fn_list", [text], functions=["neg", "add"], with_pytorch_error_handling=False
    )
    return {
        "values": [built.add(2, 3), built.neg(4)],
        "docs": [built.add.__doc__, built.neg.__doc__],
    } | {
        "names": _public(built),
        "many": world.outcome(built.add, 1, 2, 3, mentions=["incompatible function arguments"]),
        "float": world.outcome(built.add, 1.5, 2),
        "large": world.outcome(built.add, 1 << 40, 2),
    }


@case("load_inline.functions")
def functions_as_dict(world: World) -> Observed:
    documented = {"add": "Adds a to b.\\n\\nAnd says so: größer \\u00b1 1.", "neg": ""}
    text = _ADD + "int neg(int a) { return -a; }\n"
    built = world.inline("fn_dict", text, functions=documented, with_pytorch_error_handling=False)
    return {
        "docs": [built.add.__doc__, built.neg.__doc__],
        "value": built.neg(4),
        "given": documented,
    }


@case("load_inline.functions")
def functions_through_own_wrapper(world: World) -> Observed:
    """What stock writes for with_pytorch_error_handling=True, with a wrapper of the case's own."""
    wrapper = "namespace torch { template <class F> F wrap_pybind_function(F f) { return f; } }\n"
    built = world.inline(
        "fn_wrapped", _ADD + wrapper, functions=["add"], build_directory=made(world, "out")
    )
    return {"sum": built.add(2, 3), "text": (world.folder / "out/main.cpp").read_text()}


@case("load_inline.functions")
def functions_empty_list(world: World) -> Observed:
    built = world.inline("fn_none", _ADD, functions=[])
    return {"names": _public(built), "module": world.outcome(lambda: built)}


@case("load_inline.functions", stock_path=True)
def functions_of_wrong_type(world: World) -> Observed:
    call = {"with_pytorch_error_handling": False}
    return {
        "tuple": world.outcome(
            world.inline, "fn_tuple", _ADD, functions=("add",), **call, mentions=["list or dict"]
        ),
        "set": world.outcome(
            world.inline, "fn_set", _ADD, functions={"add"}, **call, mentions=["list or dict"]
        ),
        "number": world.outcome(
            world.inline, "fn_number", _ADD, functions=7, **call, mentions=["list or dict"]
        ),
    }


@case("load_inline.functions")
def function_not_defined(world: World) -> Observed:
    told = ["Error building extension 'fn_missing'", "'missing' was not declared"]
    call = {"functions": ["add", "missing"], "with_pytorch_error_handling": False}
    return {"call": world.outcome(world.inline, "fn_missing", _ADD, **call, mentions=told)}


@case("load_inline.functions")
def function_overloaded(world: World) -> Observed:
    text = _ADD + "double add(double a, double b) { return a + b; }\n"
    told = ["Error building extension 'fn_over'", "unresolved overloaded function type"]
    call = {"functions": ["add"], "with_pytorch_error_handling": False}
    return {"call": world.outcome(world.inline, "fn_over", text, **call, mentions=told)}


@case("load_inline.functions")
def docstring_that_breaks_the_binding(world: World) -> Observed:
    call = {"functions": {"add": 'says "hello"'}, "with_pytorch_error_handling": False}
    return {"call": world.outcome(world.inline, "fn_quote", _ADD, **call, mentions=["error: "])}


@case("load_inline.functions")
def functions_beside_own_module(world: World) -> Observed:
    text = _ADD + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("add", add); }\n'
    call = {"functions": ["add"], "with_pytorch_error_handling": False}
    return {
        "call": world.outcome(world.inline, "fn_twice", text, **call, mentions=["redefinition of"])
    }


@case("load_inline.cpp_sources")
def own_pybind_module(world: World) -> Observed:
    text = _ADD + (
        "namespace py = pybind11;\n"
        "struct Counter { int n = 0; int next() { return ++n; } };\n"
        "double scale(double x, double by) { return x * by; }\n"
        'std::string kind(int) { return "int"; }\n'
        'std::string kind(const std::string&) { return "text"; }\n'
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n'
        '  m.doc() = "of my own";\n  m.attr("level") = 3;\n'
        '  m.def("add", &add, "adds", py::arg("a"), py::arg("b") = 10);\n'
        '  m.def("scale", &scale, py::arg("x"), py::kw_only(), py::arg("by") = 2.0);\n'
        '  m.def("kind", py::overload_cast<int>(&kind));\n'
        '  m.def("kind", py::overload_cast<const std::string&>(&kind));\n'
        '  py::class_<Counter>(m, "Counter").def(py::init<>()).def("next", &Counter::next)'
        '.def_readwrite("n", &Counter::n);'
        "\n}\n"
    )  # fmt: skip
    built = world.inline("own_module", text)
    counter = built.Counter()
    return {
        "module": world.outcome(lambda: built),
        "docs": [built.add.__doc__, built.scale.__doc__, built.kind.__doc__],
        "defaults": [built.add(1), built.add(b=1, a=2), built.scale(3), built.scale(3, by=5)],
        "positional": world.outcome(built.scale, 3, 5),
        "kinds": [built.kind(1), built.kind("a")],
        "counter": [counter.next(), counter.next(), counter.n, type(counter).__module__],
        "level": built.level,
    }


@case("load_inline.cpp_sources")
def containers(world: World) -> Observed:
    text = _PYBIND + (
        "#include <pybind11/stl.h>\n#include <map>\n#include <optional>\n"
        "#include <string>\n#include <vector>\n"
        "std::vector<int> upto(int n) { std::vector<int> v; "
        "for (int i = 0; i < n; i++) v.push_back(i); return v; }\n"
        "std::optional<int> maybe(std::optional<int> x) { "
        "return x ? std::optional<int>(*x + 1) : std::nullopt; }\n"
        "std::tuple<int, std::string> both() { return {1, \"one\"}; }\n"
        "std::map<std::string, double> table() { return {{\"a\", 1.5}}; }\n"
    )  # fmt: skip
    names = ["upto", "maybe", "both", "table"]
    built = world.inline("containers", text, functions=names, with_pytorch_error_handling=False)
    return {
        "values": [
            built.upto(3),
            built.maybe(None),
            built.maybe(1),
            list(built.both()),
            built.table(),
        ],
        "types": [type(built.both()).__name__, type(built.upto(1)).__name__],
        "docs": [getattr(built, name).__doc__ for name in names],
    }


def _public(module: object) -> list[str]:
    return [name for name in dir(module) if not name.startswith("_")]
