"""Calls that go past pybind11's dispatcher: each argument is converted once, what fails is told by
the dispatcher, and other extensions may add overloads.
"""

from __future__ import annotations

import ctypes
import gc
import threading
from collections.abc import Callable
from typing import Any

import pytest
import zmq

from tests.support.bindings import Twice
from tests.support.calls import Connection, load, request
from tests.support.daemons import Daemon

METH_FASTCALL = 0x80  # Python's methodobject.h
SOURCE = """
int64_t sum(int64_t a, int64_t b) { return a + b; }
std::string twice(std::string text) { return text + text; }
int64_t size(at::Tensor x, std::vector<int64_t> more) { return x.numel() + more.size(); }
void nothing() {}
"""
PYBIND11 = """
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("{name}", &{name}); }}
"""
EXTENDS = """
void extend(py::module_ m) {
  m.def("sum", [](std::string a, std::string b) { return a + "+" + b; }, "of texts");
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("extend", &extend); }
"""


@pytest.fixture(scope="module")
def connection(warm: Daemon) -> Any:
    with zmq.Context() as context:
        made = Connection(warm, context)
        yield made
        made.close()


@pytest.fixture(scope="module")
def both(connection: Connection) -> Twice:
    return Twice(connection, "directly", SOURCE, ["sum", "twice", "size", "nothing"])


def is_direct(function: Callable[..., Any]) -> bool:
    """Whether Python hands it the arguments as they lie on its stack (``PyMethodDef.ml_flags``)."""
    word = ctypes.sizeof(ctypes.c_void_p)
    method = ctypes.c_void_p.from_address(id(function) + 2 * word).value
    assert method is not None
    return bool(ctypes.c_int.from_address(method + 2 * word).value & METH_FASTCALL)


class Asked:
    """A number that counts how often it is asked for."""

    def __init__(self, value: Any) -> None:
        self.value = value
        self.times = 0

    def __index__(self) -> int:
        self.times += 1
        if isinstance(self.value, Exception):
            raise self.value
        return int(self.value)


def said(function: Callable[..., Any], *positional: Any, **named: Any) -> str:
    try:
        return repr(function(*positional, **named))
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def test_each_argument_is_converted_once(both: Twice) -> None:
    for make in (
        lambda: (Asked(1), Asked(2)),
        lambda: (Asked(1), "no number"),
        lambda: (Asked(1), Asked(KeyError("inside"))),
        lambda: (Asked(1), Asked(2), Asked(3)),
    ):
        counted = []
        for module in (both.theirs, both.ours):
            values = make()
            told = said(module.sum, *values).replace(hex(id(values[0])), "")
            counted.append([getattr(value, "times", None) for value in values])
            assert told.startswith(("3", "TypeError: sum(): incompatible function arguments."))
        assert counted[0] == counted[1], counted
    assert is_direct(both.ours.sum) and not is_direct(both.theirs.sum)


def test_every_form_of_a_call(both: Twice) -> None:
    forms: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((1, 2), {}), ((1,), {}), ((), {}), ((1, 2, 3), {}), ((1,), {"b": 2}), ((1,), {"arg1": 2}),
        ((), {"arg0": 1, "arg1": 2}), ((1, 2), {"c": None}), ((None, 2), {}),
    ]  # fmt: skip
    for positional, named in forms:
        assert said(both.ours.sum, *positional, **named) == said(
            both.theirs.sum, *positional, **named
        )
    for name in ("sum", "nothing"):
        ours, theirs = getattr(both.ours, name), getattr(both.theirs, name)
        for attribute in ("__doc__", "__name__", "__module__", "__text_signature__"):
            assert getattr(ours, attribute) == getattr(theirs, attribute)
        assert type(ours.__self__).__name__ == type(theirs.__self__).__name__
        assert repr(ours).split(" at ")[0] == repr(theirs).split(" at ")[0]


@pytest.mark.slow
def test_a_module_has_the_name_by_which_it_is_imported(connection: Connection) -> None:
    """As in a package."""
    source = "void nothing() {}"
    call: dict[str, Any] = {
        "no_implicit_headers": False, "name": "inside", "module_name": "inside",
    }  # fmt: skip
    whole = source + PYBIND11.format(name="nothing")
    for name in ("inside", "package.inside"):
        named = []
        for code, more in ((source, {"functions": ["nothing"]}), (whole, {})):
            built = connection.build(request(cpp_sources=[code], **more, **call), 300)
            module = load(built, name)
            named.append((module.__name__, module.nothing.__module__))
        assert named[0] == named[1], named


def test_a_conversion_may_call_another_function(both: Twice) -> None:
    """Which fails, and is told for itself."""
    for module in (both.theirs, both.ours):

        class Nested:
            told = ""

            def __index__(self, module: Any = module) -> int:
                self.told = said(module.twice, 5)
                return 4

        nested = Nested()
        assert module.sum(nested, 1) == 5
        assert nested.told.startswith("TypeError: twice(): incompatible function arguments.")
        assert said(module.sum, nested, "x").startswith("TypeError: sum(): incompatible")


def test_calls_of_many_threads(both: Twice) -> None:
    wrong: list[str] = []

    def call(number: int) -> None:
        for step in range(2000):
            if both.ours.sum(number, step) != number + step:
                wrong.append("sum")
            if not said(both.ours.twice, number).startswith("TypeError: twice(): incompatible"):
                wrong.append("twice")

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.slow
def test_overloads_that_another_extension_adds(both: Twice, connection: Connection) -> None:
    built = connection.build(request(cpp_sources=[EXTENDS], no_implicit_headers=False), 300)
    extend = load(built, "tiny").extend
    for module in (both.theirs, both.ours):
        extend(module)
        assert (module.sum(1, 2), module.sum("a", "b")) == (3, "a+b")
        assert "of texts" in module.sum.__doc__
    assert said(both.ours.sum, 1, "b") == said(both.theirs.sum, 1, "b")
    assert both.ours.sum.__doc__ == both.theirs.sum.__doc__


@pytest.mark.slow
def test_a_module_of_many_functions_of_which_some_outlive_it(connection: Connection) -> None:
    """Functions are pybind11's own: nothing of the module's is used without the module."""
    names = [f"f{number}" for number in range(70)]
    source = "\n".join(
        f"int64_t {name}(int64_t a) {{ return a + {number}; }}" for number, name in enumerate(names)
    )
    both = Twice(connection, "many", source, names)
    built = connection.build(
        request(cpp_sources=[source], functions=names, name="many", module_name="many",
                no_implicit_headers=False), 300
    )  # fmt: skip
    assert load(built, "package.many").f1(1) == 2  # of the same file
    gc.collect()
    functions = [getattr(both.ours, name) for name in names]
    del both.ours
    gc.collect()
    for number, function in enumerate(functions):
        theirs = getattr(both.theirs, names[number])
        assert function(1000) == theirs(1000) == 1000 + number
        assert said(function, "x") == said(theirs, "x")
        assert is_direct(function) and not is_direct(theirs)
