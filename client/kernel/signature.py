"""What a kernel or a C function takes, read from its source.

The text is read, and not compiled: comments and strings are left out, aliases and macros with a
plain value are followed. What cannot be read is an error that asks for ``signature=``; what was
read is compared with what the compiler says of the kernel before its first launch.
"""

from __future__ import annotations

import re

import msgspec
from msgspec.structs import replace

from warmcc.client.kernel import c_types
from warmcc.client.kernel.c_types import CType

# Patterns are compiled when a source has what they look for: each takes up to a millisecond.
_HIDDEN = (
    r'(?s)(?P<raw>R"(?P<mark>[^\s()\\]{0,16})\(.*?\)(?P=mark)")|//(?:[^\n\\]|\\.)*|/\*.*?\*/'
    r'|"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.){1,8}\''
)
_MACRO = r"(?m)^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+([^\n(]+?)[ \t]*$"
_DIRECTIVE = r"(?m)^[ \t]*#(?:\\\n|[^\n])*"
_USING = r"\busing\s+(\w+)\s*=\s*([^;{]+);"
_TYPEDEF = r"\btypedef\s+([^;{()]+?)\s*\b(\w+)\s*;"
# Words that end a type, and are no parameter's name; and words that a type does not consist of.
_NO_NAMES = {
    "int", "long", "char", "short", "double", "float", "unsigned", "bool", "void", "const",
    "__restrict__", "__restrict", "volatile",
}  # fmt: skip
_NO_TYPES = {"const", "volatile", "struct", "class", "enum", "typename", "__grid_constant__"}
_ATTRIBUTES = {
    "__launch_bounds__", "__cluster_dims__", "__maxnreg__", "__block_size__", "__attribute__",
    "__declspec", "__align__", "alignas",
}  # fmt: skip
_TEMPLATE = r"(?:typename|class|template\s*<.*>\s*class)\s*(?:\.\.\.)?\s*(\w*)"


class SignatureError(ValueError):
    """A signature cannot be read from a source, or names what is not there."""


class Parameter(msgspec.Struct, frozen=True):
    """One parameter: its name (made up where it has none), its text, and its type once all
    template arguments are known."""

    name: str
    text: str
    type: CType | None = None


class TemplateParameter(msgspec.Struct, frozen=True):
    """``is_type``: it stands for a type; ``default`` is its text, or empty."""

    name: str
    is_type: bool
    default: str


class Signature(msgspec.Struct, frozen=True):
    """A function: its name, its parameters, those of its template, and the source's aliases."""

    name: str
    parameters: tuple[Parameter, ...]
    templates: tuple[TemplateParameter, ...] = ()
    is_c: bool = False
    result: str = "void"
    aliases: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        return f"{self.name}({', '.join(one.text for one in self.parameters)})"

    def bound(self, arguments: dict[str, str]) -> Signature:
        """With its types, where the template has these arguments. Raises SignatureError."""
        names = {**dict(self.aliases), **arguments}
        return replace(self, parameters=tuple(self._typed(one, names) for one in self.parameters))

    def _typed(self, one: Parameter, names: dict[str, str]) -> Parameter:
        try:
            return replace(one, type=c_types.resolve(_type_of(one), names))
        except ValueError as error:
            raise SignatureError(f"{self.name}: `{one.text}`: {error}") from None


def _type_of(parameter: Parameter) -> str:
    """The text of a parameter without its name."""
    text = re.sub(rf"\b{re.escape(parameter.name)}\b\s*(?P<array>\[[^\]]*\])?\s*$",
                  lambda match: "*" if match["array"] else "", parameter.text)  # fmt: skip
    return text or parameter.text


def plain(source: str) -> str:
    """A source without comments and the content of strings."""

    def hidden(match: re.Match[str]) -> str:
        text = match[0]
        return '""' if text[0] in "\"'R" else "\n" * text.count("\n") or " "

    return re.sub(_HIDDEN, hidden, source)


def kernels(source: str) -> list[Signature]:
    """The kernels (``__global__`` functions) that a source defines, in its order."""
    text = plain(source)
    aliases = _aliases(text)
    text = _without_directives(text)
    found: dict[tuple[str, ...], Signature] = {}
    for match in re.finditer(r"\b__global__\b", text):
        start = _start(text, match.start())
        one = _declared(text[start:], aliases)
        if one is not None:
            types = (c_types.normal(_type_of(parameter)) for parameter in one.parameters)
            key = (one.name, *types)
            found[key] = one  # the definition comes after its declarations
    return list(found.values())


def declared(text: str) -> Signature:
    """The function that a declaration declares. Raises SignatureError."""
    one = _declared(f"{plain(text).strip().rstrip(';')} ;", ())
    if one is None:
        raise SignatureError(f"not the declaration of a function: {text!r}")
    return one


def _aliases(text: str) -> tuple[tuple[str, str], ...]:
    found: dict[str, str] = {}
    if "#" in text:
        found |= re.findall(_MACRO, text)
    if "using" in text:
        found |= {name: target.strip() for name, target in re.findall(_USING, text)}
    if "typedef" in text:
        found |= {name: target.strip() for target, name in re.findall(_TYPEDEF, text)}
    return tuple((name, target) for name, target in found.items() if name != target)


def _without_directives(text: str) -> str:
    return re.sub(_DIRECTIVE, "", text) if "#" in text else text


def _start(text: str, at: int) -> int:
    """Where the declaration begins that has ``__global__`` at this place: behind the last ``;`` or
    brace in front of it, except braces of ``extern "C" {``."""
    return max(text.rfind(sign, 0, at) for sign in ";}{") + 1


def _declared(text: str, aliases: tuple[tuple[str, str], ...]) -> Signature | None:
    """The function whose declaration a text begins with."""
    rest = text.lstrip()
    templates: tuple[TemplateParameter, ...] = ()
    while match := re.match(r"template\s*(?=<)", rest):
        inner, rest = _bracketed(rest[match.end() :], "<", ">")
        templates = tuple(_template(one) for one in split(inner) if one.strip())
    is_c = False
    if match := re.match(r'extern\s*""\s*', rest):
        is_c, rest = True, rest[match.end() :]
    head = ""
    while match := re.match(r"[^({;]*", rest):
        head, rest = head + match[0], rest[match.end() :]
        if not rest.startswith("("):
            return None
        name = re.search(r"(\w+)\s*$", head)
        if name is None:
            return None
        inner, rest = _bracketed(rest, "(", ")")
        if name[1] in _ATTRIBUTES:
            head = head[: name.start()]
            continue
        parameters = [one.strip() for one in split(inner)]
        if parameters in ([""], ["void"]):
            parameters = []
        made = tuple(_parameter(one, number) for number, one in enumerate(parameters))
        result = re.sub(r"\b(?:static|inline|__global__|extern|__forceinline__|__noinline__)\b", "",
                        head[: name.start()])  # fmt: skip
        return Signature(name[1], made, templates, is_c, " ".join(result.split()), aliases)
    return None


def _parameter(text: str, number: int) -> Parameter:
    text = " ".join(_without_default(text).split())
    match = re.search(r"(\w+)\s*(?:\[[^\]]*\])?$", text)
    if match is not None and match[1] not in _NO_NAMES:
        front = text[: match.start()].strip()
        if front and front not in _NO_TYPES and not front.endswith("::"):
            return Parameter(match[1], text)
    return Parameter(f"argument{number}", text)


def _template(text: str) -> TemplateParameter:
    text = text.strip()
    front, _, default = text.partition("=")
    if match := re.match(_TEMPLATE, front):
        return TemplateParameter(match[1], True, default.strip())
    names = re.findall(r"\w+", front)
    return TemplateParameter(names[-1] if len(names) > 1 else "", False, default.strip())


def _without_default(text: str) -> str:
    return text.partition("=")[0].strip()


def _bracketed(text: str, opens: str, closes: str) -> tuple[str, str]:
    """What is between a bracket at the text's start and its partner, and what follows."""
    depth = 0
    for at, sign in enumerate(text):
        depth += (sign == opens) - (sign == closes)
        if depth == 0:
            return text[1:at], text[at + 1 :]
    raise SignatureError(f"a {opens!r} has no {closes!r}: {text[:60]!r}")


def split(text: str) -> list[str]:
    """The parts between commas that no bracket encloses."""
    parts, depth, start = [], 0, 0
    for at, sign in enumerate(text):
        depth += (sign in "(<[{") - (sign in ")>]}")
        if sign == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def renamed(found: Signature, name: str) -> Signature:
    """With a name that may name its namespace."""
    return replace(found, name=name)


def template_arguments(found: Signature, given: list[str]) -> dict[str, str]:
    """The arguments of a name expression by the names of the template's parameters.
    Raises SignatureError."""
    if len(given) > len(found.templates):
        raise SignatureError(
            f"{found.name} takes {len(found.templates)} template arguments, and {len(given)} are "
            "given"
        )
    names = (one.name for one in found.templates)
    return {name: text.strip() for name, text in zip(names, given, strict=False)}


def expression(found: Signature, bound: dict[str, str]) -> str:
    """The name expression of a kernel. Raises SignatureError where an argument is missing."""
    if not found.templates:
        return found.name
    texts = []
    for one in found.templates:
        text = bound.get(one.name) or one.default
        if not text:
            raise SignatureError(
                f"{found.name} is a template: say what {one.name} is, as in "
                f'"{found.name}<...>" or specialize({one.name}=...)'
            )
        texts.append(text)
    return f"{found.name}<{', '.join(texts)}>"


def defined(source: str, name: str) -> Signature:
    """The function of this name that a source of C defines. Raises SignatureError."""
    text = plain(source)
    aliases = _aliases(text)
    text = _without_directives(text)
    found = []
    for match in re.finditer(rf"\b{re.escape(name)}\s*\(", text):
        start = _start(text, match.start())
        one = _declared(text[start:], aliases)
        if one is not None and one.name == name and one.result:
            found.append(one)
    if not found:
        raise SignatureError(
            f"the source defines no function {name!r} that can be read; give its declaration, as "
            f'in "void {name}(const float* x, int n)"'
        )
    return found[-1]


def told_by_arguments(found: Signature, bound: dict[str, str]) -> dict[str, int]:
    """The types of a template that are not said, and for each the first parameter that points to
    it; nothing where one of them has none, or where a number is missing."""
    told: dict[str, int] = {}
    types = [c_types.normal(_type_of(one)) for one in found.parameters]
    for one in found.templates:
        if one.name in bound or one.default:
            continue
        if not one.is_type or f"{one.name}*" not in types:
            return {}
        told[one.name] = types.index(f"{one.name}*")
    return told


def choose(
    text: str, name: str | None, declaration: str | None
) -> tuple[Signature, dict[str, str]]:
    """The kernel that is meant, and the arguments of its template. Raises SignatureError."""
    base, _, rest = (name or "").partition("<")
    base = base.strip()
    if declaration is not None:
        found = declared(declaration)
        wanted = base.rpartition("::")[2] or found.name
        if found.name != wanted:
            raise SignatureError(f"signature declares {found.name}, and name is {wanted}")
        found = renamed(found, base or found.name)
    else:
        found = _found(text, base)
    given = split(rest.rstrip().removesuffix(">")) if rest else []
    return found, template_arguments(found, given)


def _found(text: str, base: str) -> Signature:
    known = kernels(text)
    fitting = [one for one in known if not base or one.name == base.rpartition("::")[2]]
    if len(fitting) == 1:
        return renamed(fitting[0], base or fitting[0].name)
    names = ", ".join(dict.fromkeys(one.name for one in known))
    if not known:
        raise SignatureError(
            "the source defines no kernel (__global__ void); for one in a header say "
            'name="f", signature="void f(const float* x, int n)"'
        )
    if not fitting:
        raise SignatureError(f"the source has no kernel {base!r}, but {names}")
    if not base:
        raise SignatureError(f"the source has several kernels, so name one of {names}")
    raise SignatureError(
        f"the source defines {len(fitting)} kernels {base!r}; say which with "
        f'signature="void {fitting[0]}"'
    )
