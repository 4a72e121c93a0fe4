"""The generated binding against pybind11's own: random signatures, random arguments, the same
outcome.

Each function is bound twice from the same source: by ``functions=``, and by the PYBIND11_MODULE
that stock would have written. Whatever is called with whatever must give the same result, or the
same exception with the same message.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import zmq
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import warmcc
from tests.support.bindings import ONLY_PARAMETERS, WHOLE, Signatures, Twice, arguments, fitting
from tests.support.calls import Connection
from tests.support.daemons import Daemon

SEED = int(os.environ.get("WARMCC_TEST_SEED", "1"))
FUNCTIONS = 24
CALLS = 3000


@pytest.fixture(scope="module")
def random_functions(warm: Daemon) -> tuple[Twice, dict[str, list[str]]]:
    """Functions of random signatures, and the types of their parameters."""
    signatures = Signatures(SEED)
    source, kinds = "", {}
    for number in range(FUNCTIONS):
        text, kinds[f"f{number}"] = signatures.function(f"f{number}")
        source += text
    with zmq.Context() as context:
        connection = Connection(warm, context)
        try:
            return Twice(connection, "randomly", source, list(kinds)), kinds
        finally:
            connection.close()


@pytest.mark.slow
def test_documentation_is_the_same(random_functions: tuple[Twice, dict[str, list[str]]]) -> None:
    both, kinds = random_functions
    for name in kinds:
        ours, theirs = getattr(both.ours, name), getattr(both.theirs, name)
        for attribute in ("__doc__", "__name__", "__qualname__", "__module__"):
            assert getattr(ours, attribute) == getattr(theirs, attribute)
        assert type(ours) is type(theirs)


def exported(module: Any) -> set[str]:
    """What another library could be bound to, but for what may be defined in several."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", module.__file__], capture_output=True, text=True, check=True
    ).stdout
    return {line.split()[-1] for line in listed.splitlines() if line.split()[-2] in "TDBR"}


def test_nothing_else_is_exported(random_functions: tuple[Twice, dict[str, list[str]]]) -> None:
    """What two extensions of a process both export is one function for both."""
    both, _ = random_functions
    assert {"PyInit_randomly"} <= exported(both.ours) <= exported(both.theirs)


@pytest.mark.slow
def test_random_calls_have_the_same_outcome(
    random_functions: tuple[Twice, dict[str, list[str]]],
) -> None:
    both, kinds = random_functions
    anything = st.recursive(
        st.sampled_from(arguments()),
        lambda inner: st.tuples(
            st.sampled_from([list, tuple, iter]), st.lists(inner, max_size=3)
        ).map(lambda made: lambda: made[0]([item() for item in made[1]])),
        max_leaves=4,
    )
    usual = {name: [fitting(kind) for kind in given] for name, given in kinds.items()}
    seen = {"returned": 0, "raised": 0}

    @settings(
        max_examples=CALLS,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def calls(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(kinds)))
        drawn = [data.draw(
                     st.integers(0, 4).flatmap(lambda n, one=one: anything if n == 0 else one))
                 for one in usual[name]]  # fmt: skip
        named = {}
        match data.draw(st.integers(0, 30)):
            case 0:
                drawn.append(data.draw(anything))
            case 1 if drawn:
                drawn.pop()
            case 2 if drawn:
                named = {f"arg{len(drawn) - 1}": drawn.pop()}
        (result, *_rest), _said = both.same(name, drawn, named)
        seen["raised" if result.endswith(("Error", "Exception")) else "returned"] += 1

    calls()
    assert sum(seen.values()) >= 2000
    assert min(seen.values()) > 300, seen


# Each type on its own, with every value: what one conversion accepts or refuses cannot hide behind
# another's.
SINGLES = [
    *WHOLE,
    *ONLY_PARAMETERS,
    "at::Generator",
    "std::vector<bool>",
    "std::optional<std::vector<int64_t>>",
]


@pytest.mark.slow
def test_every_type_with_every_value(warm: Daemon, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    names = [f"g{number}" for number in range(len(SINGLES))]
    bodies = ["void" if kind in ONLY_PARAMETERS else kind for kind in SINGLES]
    source = "".join(
        f"{result} {name}({kind} a) {{ {'return a;' if result != 'void' else ''} }}\n"
        for name, kind, result in zip(names, SINGLES, bodies, strict=True)
    )
    both = Twice(Connection(warm, context), "singly", source, names)
    returned = 0
    for name in names:
        for make in arguments():
            (result, *_rest), _said = both.same(name, [make], {})
            returned += not result.endswith("Error")
    assert returned > 200


THROWS = """
#include <stdexcept>
#include <new>
at::Tensor torch_error(int) {{ TORCH_CHECK(false, "told so"); }}
int value_error(int) {{ TORCH_CHECK_VALUE(false, "value"); return 1; }}
int index_error(int) {{ TORCH_CHECK_INDEX(false, "index"); return 1; }}
int not_implemented(int) {{ TORCH_CHECK_NOT_IMPLEMENTED(false, "later"); return 1; }}
void runtime(int) {{ throw std::runtime_error("runtime"); }}
void range(int) {{ throw std::out_of_range("range"); }}
void argument(int) {{ throw std::invalid_argument("argument"); }}
void memory(int) {{ throw std::bad_alloc(); }}
void unknown(int) {{ throw 3; }}
void warns(int) {{ TORCH_WARN("beware {mark}"); }}
at::Tensor undefined(int) {{ return at::Tensor(); }}
std::string not_utf8(int) {{ return "\\xff"; }}
std::vector<std::string> not_utf8_inside(int) {{ return {{"a", "\\xff"}}; }}
"""


@pytest.mark.slow
@pytest.mark.parametrize("handled", [True, False], ids=["handled", "not handled"])
def test_exceptions(handled: bool, warm: Daemon, context: zmq.Context[zmq.Socket[bytes]]) -> None:
    source = THROWS.format(mark=handled)
    names = [line.split("(")[0].split()[-1] for line in source.splitlines() if "(int)" in line]
    module = "handled" if handled else "unhandled"
    both = Twice(
        Connection(warm, context), module, source, names, with_pytorch_error_handling=handled
    )
    found = {name: both.same(name, [lambda: 1], {})[0][0] for name in names}
    assert found["range"] == ("RuntimeError" if handled else "IndexError")
    assert found["torch_error"] == "RuntimeError"


KEEPS = """
int64_t uses(at::Tensor x) { return x.use_count(); }
int64_t two(at::Tensor x, at::Tensor y) { auto kept = std::move(x); return kept.use_count(); }
at::Tensor gives(at::Tensor x, std::vector<at::Tensor> more) {
  auto kept = std::move(x);
  more.clear();
  return kept;
}
std::string grows(std::string a, std::string b) { a += b; b.clear(); return a; }
at::Tensor none(std::optional<at::Tensor> x) { x.reset(); return at::Tensor(); }
at::Tensor fails(at::Tensor x) { auto kept = std::move(x); throw std::range_error("here"); }
"""


@pytest.mark.slow
def test_what_a_function_does_with_its_own(
    warm: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    """A parameter may be emptied, and nothing is left of it after the call."""
    import torch

    names = [line.split("(")[0].split()[-1] for line in KEEPS.splitlines() if ") {" in line]
    both = Twice(Connection(warm, context), "keeps", KEEPS, names)
    x = torch.ones(3)
    y = [x, x]
    long = "long enough for the heap" * 4
    for name, values in {
        "uses": (x,), "two": (x, x), "gives": (x, y), "grows": (long, "b"), "none": (x,),
        "fails": (x,),
    }.items():  # fmt: skip
        before = sys.getrefcount(x), sys.getrefcount(y)
        both.same(name, [lambda value=value: value for value in values], {})
        assert (sys.getrefcount(x), sys.getrefcount(y)) == before, name
        assert both.ours.uses(x) == both.theirs.uses(x) == 2, name
        assert torch.equal(x, torch.ones(3)), name


def test_documentation_with_arguments_of_pybind11s(
    warm: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stock pastes it between quotes, by which public code gives parameters their defaults."""
    for name, value in warm.environment.items():
        monkeypatch.setenv(name, value)
    source = "int add(int a, int b) { return a + b; }"
    text = 'adds", pybind11::arg("a"), pybind11::arg("b") = 10, "to it'
    module = warmcc.load_inline("with_defaults", source, functions={"add": text})
    assert (module.add(1, 2), module.add(1), module.add(b=3, a=4)) == (3, 11, 7)
    with pytest.raises(warmcc.CompileError, match="hello"):
        warmcc.load_inline("with_quotes", source, functions={"add": 'says "hello"'})
