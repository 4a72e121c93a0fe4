"""The text of a stub, from a loaded module."""

from __future__ import annotations

import ast
import enum
import keyword
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from warmcc.client.stubs import docstrings, parameters
from warmcc.client.stubs.annotations import ANY, Annotations
from warmcc.client.stubs.docstrings import Parameter, Signature

# Of each class of pybind11, and nothing to call
_HIDDEN = {
    "__doc__", "__module__", "__entries", "__members__", "__dict__", "__weakref__", "__getstate__",
    "__setstate__", "__new__", "__hash__", "_pybind11_conduit_v1_", "__pybind11_module_local_v1__",
    "__annotations__", "__qualname__", "__firstlineno__", "__static_attributes__",
}  # fmt: skip
# What pybind11 allows and type checkers do not: overloads in any order, operators of own types
_ALLOWED = "assignment,overload-cannot-match,overload-overlap,override"
_LONGEST_DEFAULT = 60


class Writer:
    """Writes the stub of one module. ``sources``: texts of C++ that may name parameters.

    Raises ValueError where there is nothing that Python could use.
    """

    def __init__(self, module: ModuleType, sources: list[str]) -> None:
        self._module = module
        self._sources = sources
        classes = dict(self._classes(vars(module)))
        names = {*vars(module), *(name for one in classes.values() for name in vars(one))}
        own = [one for one in classes if all(map(_can_be_written, one.split(".")))]
        self._annotations = Annotations(module.__name__, own, names)

    def _classes(self, members: Any) -> Iterator[tuple[str, type]]:
        for name, value in list(members.items()):
            if self._is_own(name, value):
                yield value.__qualname__, value
                yield from self._classes(vars(value))

    def _is_own(self, name: str, value: object) -> bool:
        return (
            isinstance(value, type) and value.__module__ == self._module.__name__
            and value.__qualname__.split(".")[-1] == name
        )  # fmt: skip

    def text(self) -> str:
        members = [
            (name, value) for name, value in vars(self._module).items()
            if not name.startswith("__") or not name.endswith("__")
        ]  # fmt: skip
        if not members:
            raise ValueError("it defines nothing that Python could use: there is nothing to stub")
        body = [row for name, value in members for row in self._member(name, value)]
        head = [
            f"# The signatures of {self._module.__name__}, as pybind11 documents them.",
            f'# mypy: disable-error-code="{_ALLOWED}"',
            *_quoted(_documentation(self._module), ""),
            "",
            *self._annotations.imports(),
            "",
        ]
        return "\n".join([*head, *body]).rstrip("\n") + "\n"

    def _member(self, name: str, value: Any, owner: str = "") -> list[str]:
        """The rows of one name of the module, or of its class ``owner``."""
        if not _can_be_written(name):
            return [f"# {name!a}: a name that only getattr can say", ""]
        if self._is_own(name, value):
            return self._class(name, value)
        if isinstance(value, property):
            return self._property(name, value)
        inside = value.__func__ if isinstance(value, staticmethod) else value
        if callable(inside) and not isinstance(inside, type) and not self._is_value(inside):
            static = isinstance(value, staticmethod)
            return self._function(name, inside, owner=owner, static=static)
        return [f"{name}: {self._kind(value, owner)}", ""]

    def _is_value(self, value: object) -> bool:
        """Whether it is an object of one of the module's classes, which may be callable."""
        return type(value).__module__ == self._module.__name__

    def _kind(self, value: object, owner: str) -> str:
        named = self._annotations.named
        kind = type(value)
        if isinstance(value, ModuleType):
            found = named("types.ModuleType")
        elif isinstance(value, type):
            found = f"{named('type')}[{named(ANY)}]"
        else:
            module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
            found, _ = self._annotations.of(f"{module}{kind.__qualname__}", result=True)
        return f"{named('typing.ClassVar')}[{found}]" if owner else found

    def _class(self, name: str, kind: type) -> list[str]:
        found = [self._base(base) for base in kind.__bases__]
        bases = [base for base in found if base]
        rows = [f"class {name}({', '.join(bases)}):" if bases else f"class {name}:"]
        rows += _quoted(_documentation(kind), "    ")
        if issubclass(kind, enum.Enum):
            body = [f"{one.name} = {_default(repr(one.value))}" for one in kind]
        else:
            hidden = {name for name in vars(kind) if name in _HIDDEN}
            body = [
                row for one, value in vars(kind).items() if one not in hidden
                for row in self._member(one, value, kind.__qualname__)
            ]  # fmt: skip
        rows += [f"    {row}" if row else "" for row in body] or ["    ..."]
        return [*rows, ""] if rows[-1] else rows

    def _base(self, base: type) -> str:
        if base is object or base.__module__ == "pybind11_builtins":
            return ""
        text = base.__qualname__
        if base.__module__ != "builtins":
            text = f"{base.__module__}.{text}"
        found, unknown = self._annotations.of(text)
        return "" if unknown else found

    def _function(self, name: str, value: Any, *, owner: str, static: bool) -> list[str]:
        text = _documentation(value)
        try:
            signatures = docstrings.read(text, name)
            definitions = [self._definition(name, one, owner and not static) for one in signatures]
            texts = [one.text for one in signatures]
        except docstrings.Unreadable:
            definitions, texts = [self._anything(name, owner and not static)], [text]
        marks = [f"@{self._annotations.named('typing.overload')}"] * (len(definitions) > 1)
        marks += [f"@{self._annotations.named('staticmethod')}"] * static
        return [
            row for (definition, comment), said in zip(definitions, texts, strict=True)
            for row in [*marks, *_with_body(definition, comment, said)]
        ]  # fmt: skip

    def _anything(self, name: str, method: object, comment: str = "") -> tuple[str, str]:
        anything = self._annotations.named(ANY)
        first = "self, " if method else ""
        words = f"{first}*args: {anything}, **kwargs: {anything}"
        return f"def {name}({words}) -> {anything}", comment

    def _definition(self, name: str, signature: Signature, method: object) -> tuple[str, str]:
        """A signature's line, and a comment about types that Python has no name for."""
        given = list(signature.parameters)
        first = [given.pop(0).name] if method and given else []
        unnamed = [one.name for at, one in enumerate(given, len(first)) if one.name == f"arg{at}"]
        known = None if method else parameters.names(self._sources, name, len(unnamed))
        fresh = dict(zip(unnamed, known or unnamed, strict=True))
        if any(not _can_be_written(one) for one in fresh.values()):
            fresh = dict(zip(unnamed, unnamed, strict=True))
        comments: list[str] = []
        words = list(first)
        for one in given:
            words.append(self._parameter(one, fresh.get(one.name, one.name), comments))
            if unnamed and one.name == unnamed[-1] and Parameter("/", "", None) not in given:
                words.append("/")  # pybind11 takes what has no name by its place only
        result, unknown = self._annotations.of(signature.result, result=True)
        comments += [unknown] * bool(unknown)
        line = f"def {name}({', '.join(words)}) -> {result}"
        try:
            ast.parse(f"{line}: ...")
        except SyntaxError:  # a parameter with a name such as `from`
            return self._anything(name, method, f"its parameters: {_shown(signature)}")
        return line, ", ".join(dict.fromkeys(comments))

    def _parameter(self, one: Parameter, name: str, comments: list[str]) -> str:
        if name in ("*", "/"):
            return name
        kind, unknown = self._annotations.of(one.kind or "object")
        if not one.kind and name.startswith("*"):
            kind = self._annotations.named(ANY)
        comments += [unknown] * bool(unknown)
        if one.default is None:
            return f"{name}: {kind}"
        if one.default == "None" and not kind.endswith("None") and kind != ANY:
            kind += " | None"
        return f"{name}: {kind} = {_default(one.default)}"

    def _property(self, name: str, value: property) -> list[str]:
        result, comment = self._half(value.fget, result=True)
        if type(value).__name__ == "pybind11_static_property":
            kind = f"{self._annotations.named('typing.ClassVar')}[{result}]"
            return [*_row(f"{name}: {kind}", comment), ""]
        rows = [f"@{self._annotations.named('property')}"]
        said = _documentation(value)
        said = "" if said.startswith(f"{name}(") else said
        rows += _with_body(f"def {name}(self) -> {result}", comment, said)
        if value.fset is not None:
            kind, comment = self._half(value.fset, result=False)
            line = f"def {name}(self, value: {kind}, /) -> None"
            rows += [f"@{name}.setter", *_with_body(line, comment, "")]
        return rows

    def _half(self, function: object, *, result: bool) -> tuple[str, str]:
        """The type of a property, of its getter or its setter."""
        try:
            (found,) = docstrings.read(_documentation(function), "")
            kind = found.result if result else found.parameters[1].kind
        except (docstrings.Unreadable, IndexError):
            return self._annotations.named(ANY), ""
        return self._annotations.of(kind, result=result)


def _can_be_written(name: str) -> bool:
    return name.isidentifier() and not keyword.iskeyword(name)


def _documentation(value: object) -> str:
    """A docstring; none where it is not Unicode."""
    try:
        text = value.__doc__
    except UnicodeDecodeError:
        return ""
    return text.strip() if isinstance(text, str) else ""


def _default(text: str) -> str:
    """A default as it stands in a stub: a plain value, or the dots."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return "..."
    plain = value is None or isinstance(value, (bool, int, float, str, bytes))
    return repr(value) if plain and len(repr(value)) <= _LONGEST_DEFAULT else "..."


def _shown(signature: Signature) -> str:
    return ", ".join(f"{one.name}: {one.kind}" for one in signature.parameters)


def _row(line: str, comment: str) -> list[str]:
    printable = "".join(one if one.isprintable() else " " for one in comment)
    return [f"# {printable}", line] if comment else [line]


def _with_body(line: str, comment: str, said: str) -> list[str]:
    if not said:
        return [*_row(f"{line}: ...", comment), ""]
    *before, last = _row(f"{line}:", comment)
    # Between the decorators and the definition a comment may stand, too
    return [*before, last, *_quoted(said, "    "), ""]


def _quoted(text: str, indent: str) -> list[str]:
    """A docstring's rows; none for no text."""
    if not text:
        return []
    safe = "".join(
        one if one.isprintable() or one == "\n" else one.encode("unicode_escape").decode()
        for one in text.replace("\\", "\\\\").expandtabs()
    ).replace('"""', '\\"\\"\\"')
    if safe.endswith('"'):
        safe = f'{safe[:-1]}\\"'
    first, *more = safe.split("\n")
    rows = [f'"""{first}', *more]
    rows[-1] += '"""' if not more else ""
    rows += ['"""'] * bool(more)
    return [f"{indent}{row}" if row.strip() else "" for row in rows]
