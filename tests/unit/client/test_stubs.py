"""pybind11's docstrings, read and translated: those of several versions, and other texts."""

from __future__ import annotations

import pytest

from warmcc.client.stubs import docstrings, parameters
from warmcc.client.stubs.annotations import Annotations
from warmcc.client.stubs.docstrings import Unreadable


def translated(text: str, *, result: bool = False) -> tuple[str, str]:
    return Annotations("ext", ["Box", "Box.Lid"], ["Box", "dict"]).of(text, result=result)


@pytest.mark.parametrize(
    ("text", "annotation", "unknown"),
    [
        ("torch.Tensor", "torch.Tensor", ""),
        ("ext.Box", "Box", ""),
        ("ext.Box.Lid | None", "Box.Lid | None", ""),
        ("List[Optional[int]]", "typing.List[typing.Optional[int]]", ""),
        ("Callable[[int, str], None]", "typing.Callable[[int, str], None]", ""),
        ("Callable[..., int]", "collections.abc.Callable[..., int]", ""),
        ("numpy.ndarray[numpy.float64]", "numpy.typing.NDArray[numpy.float64]", ""),
        ('typing.Annotated[list[int], "FixedSize(3)"]', "list[int]", ""),
        ("Tuple[int, ...]", "list[int] | tuple[int, ...]", ""),
        ("tuple", "tuple[typing.Any, ...]", ""),
        ("dict", "builtins.dict[typing.Any, typing.Any]", ""),
        ("collections.abc.Callable", "collections.abc.Callable[..., typing.Any]", ""),
        ("std::map<int, a::B<c> >", "typing.Any", "std::map<int, a::B<c> >"),
        ("list[(anonymous namespace)::X]", "list[typing.Any]", "(anonymous namespace)::X"),
        ("Opaque | int", "typing.Any | int", "Opaque"),
        ("subprocess.Missing", "typing.Any", "subprocess.Missing"),
        ("other.package.Kind", "typing.Any", "other.package.Kind"),
        ("ext.Missing", "typing.Any", "ext.Missing"),
        ("no type at all", "typing.Any", "no type at all"),
        ("__import__('os')", "typing.Any", "__import__('os')"),
        ("", "typing.Any", ""),
        ("object", "object", ""),
    ],
)
def test_types(text: str, annotation: str, unknown: str) -> None:
    assert translated(text) == (annotation, unknown)


def test_results() -> None:
    assert translated("object", result=True) == ("typing.Any", "")
    assert translated("Tuple[int, ...]", result=True) == ("typing.Tuple[int, ...]", "")


def test_names_that_the_module_hides() -> None:
    annotations = Annotations("ext", [], ["torch", "int"])
    assert annotations.of("dict[int, torch.Tensor]") == ("dict[builtins.int, _torch.Tensor]", "")
    assert annotations.imports() == ["import builtins", "import torch as _torch"]


def test_defaults_are_anything() -> None:
    text = (
        "f(a: int = <Kind.x: ')'>, b: str = \"it's, (\", c: X = tensor([[1, 2],\n [3]])) -> int\n"
    )
    (found,) = docstrings.read(text, "f")
    assert [one.default for one in found.parameters] == [
        "<Kind.x: ')'>", "\"it's, (\"", "tensor([[1, 2],\n [3]])",
    ]  # fmt: skip


def test_overloads_with_documentation_that_looks_like_one() -> None:
    text = (
        "f(*args, **kwargs)\nOverloaded function.\n\n1. f(a: int) -> int\n\nAs in 1. f(x), and\n\n"
        "3. g(x)\n\n2. f(a: str) -> str\n"
    )
    first, second = docstrings.read(text, "f")
    assert first.text == "As in 1. f(x), and\n\n3. g(x)" and second.result == "str"


@pytest.mark.parametrize(
    "text",
    ["", "Adds.", "f", "f(", "f(a: int", "f(a: int)", "g(a: int) -> int", "f(a: str = 'x) -> int",
     "f(*args, **kwargs)\nOverloaded function.\n\nnothing"],
)  # fmt: skip
def test_what_is_no_signature(text: str) -> None:
    with pytest.raises(Unreadable):
        docstrings.read(text, "f")


@pytest.mark.parametrize(
    ("source", "count", "found"),
    [
        ("void f(const at::Tensor &x, int n = g(1, 2)) {", 2, ["x", "n"]),
        ("// int f(int wrong);\nint f(std::map<int, int> by);", 1, ["by"]),
        ("int f();", 0, []),
        ("int f(int);", 1, None),
        ("int f(int a, int a);", 2, None),
        ("int y = f(x * a, b);", 2, None),
        ("int f(int a", 1, None),
        ("int g(int a);", 1, None),
    ],
)
def test_names_of_parameters(source: str, count: int, found: list[str] | None) -> None:
    assert parameters.names([source], "f", count) == found
