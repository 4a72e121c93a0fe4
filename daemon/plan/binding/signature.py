"""Read a function's signature from the user's C++, as far as its types are known here.

Strict on purpose: what is not understood to the last token is left to pybind11. And nothing rests
on this reading alone: the compiler checks each signature against the function itself (a
``static_assert`` in the user's unit).
"""

from __future__ import annotations

from dataclasses import dataclass

_SPECIFIERS = {"static", "inline", "extern", "constexpr", "__inline__", "__inline"}
_BASES = {
    **{f"{space}Tensor": "::at::Tensor" for space in ("at::", "torch::", "")},
    **{f"{space}Scalar": "::c10::Scalar" for space in ("at::", "torch::", "c10::")},
    **{f"{space}ScalarType": "::c10::ScalarType" for space in ("at::", "torch::", "c10::")},
    "torch::Dtype": "::c10::ScalarType",
    **{f"{space}Device": "::c10::Device" for space in ("at::", "torch::", "c10::")},
    **{f"{space}Layout": "::c10::Layout" for space in ("at::", "torch::", "c10::")},
    **{f"{space}MemoryFormat": "::c10::MemoryFormat" for space in ("at::", "torch::", "c10::")},
    **{f"{space}Generator": "::at::Generator" for space in ("at::", "torch::")},
    **{f"{space}SymInt": "::c10::SymInt" for space in ("at::", "torch::", "c10::")},
    **{
        f"{space}IntArrayRef": "::c10::ArrayRef<::std::int64_t>"
        for space in ("at::", "torch::", "c10::")
    },
    **{
        f"{space}SymIntArrayRef": "::c10::ArrayRef<::c10::SymInt>"
        for space in ("at::", "torch::", "c10::")
    },
    "std::string": "::std::string",
    "std::string_view": "::std::string_view",
}
_TEMPLATES = {
    "std::vector": "::std::vector",
    "std::tuple": "::std::tuple",
    "std::pair": "::std::pair",
    **{f"{space}optional": "::std::optional" for space in ("std::", "c10::", "at::", "torch::")},
    **{f"{space}ArrayRef": "::c10::ArrayRef" for space in ("at::", "torch::", "c10::")},
}
_ARRAYS = (
    "::c10::ArrayRef<::std::int64_t>",
    "::c10::ArrayRef<long>",
    "::c10::ArrayRef<::c10::SymInt>",
)
_LARGEST_TUPLE = 8  # casters.cc's Sizes
_FIXED = {f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)} | {"size_t"}
_NUMBER_WORDS = {"int", "long", "short", "char", "unsigned", "signed", "float", "double", "bool"}
_NUMBERS = {
    "bool", "float", "double", "short", "int", "long", "long long", "unsigned short",
    "unsigned int", "unsigned long", "unsigned long long",
}  # fmt: skip


class UnreadableSignature(Exception):
    """Why a signature is left to pybind11."""


@dataclass(frozen=True)
class Signature:
    """A function's types, spelled with full names: ``::at::Tensor``, ``const ::std::string&``."""

    result: str
    parameters: tuple[str, ...]

    @property
    def pointer(self) -> str:
        """The type of a pointer to such a function."""
        return f"{self.result} (*)({', '.join(self.parameters)})"


def find(source: list[str], name: str) -> Signature:
    """The signature of the function of this name among a source's tokens.
    Raises UnreadableSignature."""
    found = {_read(source, start, at, name) for start, at in _declarations(source, name)}
    if not found:
        raise UnreadableSignature(f"{name} is not declared at the top level of the source")
    if len(found) > 1:
        raise UnreadableSignature(f"{name} is overloaded")
    return found.pop()


def _declarations(source: list[str], name: str) -> list[tuple[int, int]]:
    """Where each top-level declaration of ``name`` begins, and where the name is in it."""
    places = []
    depth, start = 0, 0
    for at, token in enumerate(source):
        if token in ("{", "(", "["):
            if depth == 0 and token == "(" and at > start + 1 and source[at - 1] == name:
                places.append((start, at - 1))
            depth += 1
        elif token in ("}", ")", "]"):
            depth -= 1
            if depth == 0 and token == "}":
                start = at + 1
        elif token == ";" and depth == 0:
            start = at + 1
    return places


def _read(source: list[str], start: int, at: int, name: str) -> Signature:
    result = _Reader(
        [token for token in source[start:at] if token not in _SPECIFIERS], f"the result of {name}"
    )
    end = _closing(source, at + 1)
    if source[end + 1 : end + 2] not in (["{"], [";"]):
        raise UnreadableSignature(
            f"{name} is declared with {' '.join(source[end + 1 : end + 2]) or 'an open end'}"
        )
    parameters = [_parameter(part, name) for part in _arguments(source[at + 2 : end])]
    kind = result.type(void=True)
    result.end()
    if kind.endswith("&"):
        raise UnreadableSignature(f"{name} returns a reference")
    return Signature(kind, tuple(parameters))


def _closing(source: list[str], at: int) -> int:
    depth = 0
    for index in range(at, len(source)):
        depth += (source[index] in "([{") - (source[index] in ")]}")
        if depth == 0:
            return index
    raise UnreadableSignature("a parenthesis is not closed")


def _arguments(source: list[str]) -> list[list[str]]:
    """The parameters between two parentheses, split at their commas, without default values."""
    if source in ([], ["void"]):
        return []
    parts: list[list[str]] = [[]]
    depth, default = 0, False
    for token in source:
        depth += (token in ("(", "[", "{", "<")) - (token in (")", "]", "}", ">"))
        if token == "," and depth == 0:
            parts.append([])
            default = False
        elif token == "=" and depth == 0:
            default = True
        elif not default:
            parts[-1].append(token)
    return parts


def _parameter(source: list[str], name: str) -> str:
    reader = _Reader(source, f"a parameter of {name}")
    kind = reader.type()
    reader.name()
    reader.end()
    return kind


class _Reader:
    """Reads one type from its tokens; ``what`` it is of is for messages."""

    def __init__(self, source: list[str], what: str) -> None:
        self._source = source
        self._what = what
        self._at = 0

    def _peek(self) -> str:
        return self._source[self._at] if self._at < len(self._source) else ""

    def _take(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _refuse(self) -> UnreadableSignature:
        return UnreadableSignature(
            f"the type of {self._what} is not covered: {' '.join(self._source)}"
        )

    def type(self, *, void: bool = False, inner: bool = False) -> str:
        constant = self._take("const")
        kind = "void" if void and self._take("void") else self._base(inner=inner)
        constant = self._take("const") or constant
        if self._take("&"):
            # A reference that is not const would give changes back, which only a tensor's handle
            # can.
            if inner or (not constant and kind != "::at::Tensor"):
                raise self._refuse()
            return f"const {kind}&" if constant else f"{kind}&"
        return kind  # const by value is not part of a function's type

    def _base(self, *, inner: bool) -> str:
        if self._peek() in _NUMBER_WORDS:
            return self._number()
        self._take("::")
        words = [self._word()]
        while self._take("::"):
            words.append(self._word())
        name = "::".join(words)
        if name.removeprefix("std::") in _FIXED:
            return f"::std::{name.removeprefix('std::')}"
        if name in _BASES:
            return self._whole(_BASES[name], inner=inner)
        if name not in _TEMPLATES or not self._take("<"):
            raise self._refuse()
        arguments = [self.type(inner=True)]
        while self._take(","):
            arguments.append(self.type(inner=True))
        if not self._take(">"):
            raise self._refuse()
        kind = f"{_TEMPLATES[name]}<{', '.join(arguments)}>"
        if kind.startswith("::c10::ArrayRef") and kind not in _ARRAYS:
            raise self._refuse()
        if not self._fits(name, len(arguments)):
            raise self._refuse()
        return self._whole(kind, inner=inner)

    @staticmethod
    def _fits(template: str, arguments: int) -> bool:
        if template == "std::tuple":
            return arguments <= _LARGEST_TUPLE
        return arguments == (2 if template == "std::pair" else 1)

    def _whole(self, kind: str, *, inner: bool) -> str:
        """A type as it was read.
        Inside of another, an array that belongs to nobody could outlive its numbers."""
        if inner and kind.startswith("::c10::ArrayRef"):
            raise self._refuse()
        return kind

    def _number(self) -> str:
        words = []
        while self._peek() in _NUMBER_WORDS:
            words.append(self._peek())
            self._at += 1
        sign = ["unsigned"] if "unsigned" in words else []
        rest = [word for word in words if word not in ("signed", "unsigned")]
        if len(rest) > 1 and "int" in rest:
            rest.remove("int")
        name = " ".join([*sign, *(rest or ["int"])])
        if name not in _NUMBERS:
            raise self._refuse()
        return name

    def _word(self) -> str:
        word = self._peek()
        if not word.isidentifier():
            raise self._refuse()
        self._at += 1
        return word

    def name(self) -> None:
        if self._peek().isidentifier() and self._peek() != "const":
            self._at += 1

    def end(self) -> None:
        if self._at != len(self._source):
            raise self._refuse()
