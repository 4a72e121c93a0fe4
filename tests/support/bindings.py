"""Random signatures, random arguments for them, and modules that bind each function twice."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import strategies as st

from tests.support.calls import Connection, load, request

WHOLE = [
    "bool", "int8_t", "uint8_t", "int16_t", "uint16_t", "int", "unsigned int", "int64_t",
    "uint64_t", "long long", "float", "double", "std::string", "at::Tensor", "torch::Tensor",
    "at::Scalar", "c10::SymInt", "at::ScalarType", "at::Device", "at::Layout", "at::MemoryFormat",
    "std::string_view",
]  # fmt: skip

ONLY_PARAMETERS = ["at::IntArrayRef", "c10::SymIntArrayRef", "std::optional<at::Generator>"]


class Signatures:
    """Random signatures: functions that give all their arguments back, so that results are
    converted too.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def type(self, depth: int = 0) -> str:
        kind = self._random.random()
        if kind < 0.55 or depth == 2:
            return self._random.choice(WHOLE)
        inner = [self.type(depth + 1) for _ in range(self._random.randint(1, 3))]
        if kind < 0.7:
            return f"std::vector<{inner[0]}>"
        if kind < 0.85:
            return f"std::optional<{inner[0]}>"
        return (
            f"std::pair<{inner[0]}, {inner[-1]}>"
            if kind < 0.9
            else f"std::tuple<{', '.join(inner)}>"
        )

    def function(self, name: str) -> tuple[str, list[str]]:
        """The source of a function, and the types of its parameters."""
        types = [self.type() for _ in range(self._random.randint(0, 4))]
        result = f"std::tuple<{', '.join(types)}>" if types else "void"
        gives = f"return {{{', '.join(f'a{i}' for i in range(len(types)))}}};" if types else ""
        if types and self._random.random() < 0.3:
            result, gives = types[0], "return a0;"
        more = [self._random.choice(ONLY_PARAMETERS) for _ in range(self._random.random() < 0.3)]
        passed = [self._random.choice(["{}", "const {}&"]).format(kind) for kind in types] + more
        declared = ", ".join(f"{kind} a{i}" for i, kind in enumerate(passed))
        return f"{result} {name}({declared}) {{ {gives} }}\n", [*types, *more]


def arguments() -> list[Callable[[], Any]]:
    """Makers of values: some are used up by a call."""
    import numpy as np
    import torch

    class Index:
        def __index__(self) -> int:
            return 5

    class Int:
        def __int__(self) -> int:
            return 6

    class Float:
        def __float__(self) -> float:
            return 7.5

    class Raises:
        def __index__(self) -> int:
            raise KeyError("index")

        def __float__(self) -> float:
            raise KeyError("float")

        def __len__(self) -> int:
            raise KeyError("len")

    class Sequence:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, index: int) -> int:
            if index > 1:
                raise IndexError
            return index

    tensor = torch.ones(2)
    fixed: list[Any] = [
        None, True, False, 0, 1, -1, 127, 128, 255, 256, -129, 2**31, 2**32, 2**63 - 1, 2**63,
        2**64, 0.0, 2.5, 1e300, float("nan"), float("inf"), 1j, "", "cpu", "é", "\ud800", "a\0b",
        b"bytes", b"\xff", bytearray(b"x"), "meta:1", np.int32(3), np.float64(2.5), np.float32(1.5),
        np.bool_(True), np.int64(2**40), np.array(3), np.ones(2), tensor, torch.tensor(3),
        torch.tensor(2.5), torch.tensor(True), torch.nn.Parameter(torch.ones(1)), torch.int8,
        torch.float32, torch.device("cpu"), torch.strided, torch.contiguous_format,
        torch.Generator(), torch.Size([1, 2]), Index(), Int(), Float(), Raises(), Sequence(),
        object(), int, [], (), {}, {1, 2}, {1: 2}, range(3), torch,
    ]  # fmt: skip
    return [
        *(lambda value=value: value for value in fixed),
        lambda: (i for i in (1, 2)),
        lambda: iter([tensor]),
    ]


def inside(kind: str) -> list[str]:
    """The arguments of a template."""
    parts, depth = [""], 0
    for char in kind[kind.index("<") + 1 : -1]:
        depth += (char == "<") - (char == ">")
        if char == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def fitting(kind: str) -> st.SearchStrategy[Callable[[], Any]]:
    """Makers of values that a type accepts, mostly."""
    import torch

    def always(*values: Any) -> st.SearchStrategy[Callable[[], Any]]:
        return st.sampled_from([lambda value=value: value for value in values])

    if kind.startswith("std::vector"):
        items = st.lists(fitting(inside(kind)[0]), max_size=3)
        return items.map(lambda made: lambda: [item() for item in made])
    if kind.startswith("std::optional"):
        return st.one_of(always(None), fitting(inside(kind)[0]))
    if kind.startswith(("std::tuple", "std::pair")):
        return st.tuples(*map(fitting, inside(kind))).map(
            lambda made: lambda: tuple(item() for item in made)
        )
    if "int" in kind or kind in ("long long", "c10::SymInt"):
        return always(0, 1, 100, True)
    if "string" in kind:
        return always("", "text", "é", b"bytes")
    if "Array" in kind:
        return always([1, 2], (3,), torch.Size([4]))
    named: dict[str, tuple[Any, ...]] = {
        "bool": (True, False), "Scalar": (1, 2.5, True, 1j),
        "Tensor": (torch.ones(2), torch.tensor(3)), "ScalarType": (torch.float32, torch.bool),
        "Device": (torch.device("cpu"), "meta"), "Layout": (torch.strided,),
        "MemoryFormat": (torch.contiguous_format,), "Generator": (torch.Generator(),),
    }  # fmt: skip
    return always(*named.get(kind.partition("::")[2] or kind, (1, 2.5)))


def shown(value: Any) -> Any:
    """A value in a form that can be compared: its type, and what it holds."""
    import torch

    if isinstance(value, (list, tuple)):
        return type(value).__name__, [shown(item) for item in value]
    if isinstance(value, torch.Tensor):
        return type(value).__name__, value.data_ptr() if value.numel() > 1 else repr(value)
    return type(value).__name__, repr(value).split(" at 0x")[0]


def outcome(function: Callable[..., Any], positional: list[Any], named: dict[str, Any]) -> Any:
    import torch

    torch.set_warn_always(True)  # else torch says some warnings once in a process
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            result = shown(function(*positional, **named))
        except Exception as error:
            result = type(error).__name__, str(error).split(" at 0x")[0], repr(error.__cause__)
    # What is collected meanwhile may warn as well, and is no function's doing.
    told = [one for one in said if not issubclass(one.category, ResourceWarning)]
    return result, [(one.category.__name__, str(one.message)) for one in told]


class Twice:
    """One source's functions, bound both ways."""

    def __init__(
        self, connection: Connection, module: str, source: str, names: list[str], **more: Any
    ) -> None:
        wrap = (
            "torch::wrap_pybind_function({0})"
            if more.get("with_pytorch_error_handling", True)
            else "{0}"
        )
        lines = "".join(f'm.def("{name}", {wrap.format(name)}, "{name}");\n' for name in names)
        whole = f"{source}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{lines}}}\n"
        common: dict[str, Any] = {
            "no_implicit_headers": False,
            "name": module,
            "module_name": module,
        }
        ours = connection.build(
            request(cpp_sources=[source], functions=names, **common, **more), 300
        )
        theirs = connection.build(request(cpp_sources=[whole], **common), 300)
        self.ours, self.theirs = load(ours, module), load(theirs, module)
        assert self.ours is not self.theirs
        assert ours.way.startswith("lean way"), ours.way
        assert "PYBIND11_MODULE" in theirs.sources["main.cpp"]

    def same(
        self, name: str, positional: list[Callable[[], Any]], named: dict[str, Callable[[], Any]]
    ) -> Any:
        """What both give, which must be equal."""
        both = [
            outcome(
                getattr(module, name),
                [make() for make in positional],
                {key: make() for key, make in named.items()},
            )
            for module in (self.theirs, self.ours)
        ]
        assert both[0] == both[1], (name, getattr(self.ours, name).__doc__, both)
        return both[0]


@pytest.fixture(scope="module", autouse=True)
def _warnings_each_time() -> Iterator[None]:
    """Torch says some things only once, so only to the first of two that do the same."""
    import torch

    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)
    yield
    torch.set_warn_always(before)
