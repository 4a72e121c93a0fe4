"""Write the C++ of a binding: the tail of the user's unit, the binding unit and the casters' unit.

They meet in a few symbols with hidden visibility: the user's unit defines tables of its functions,
their names and documentation; it, or a unit of its own, the module's name; the binding unit a table
of the signatures; the casters' unit ``warmcc_init``.
What the module exports is stock's: ``PyInit_<name>``.
"""

from __future__ import annotations

import functools

from warmcc.daemon import native
from warmcc.daemon.plan.binding.signature import Signature

# Half of what stock puts in front of pybind11's conversions
_CASTERS_HEADERS = "#include <torch/csrc/utils/pybind.h>\n#include <torch/csrc/Exceptions.h>\n"
MARK = "warmcc-binding"  # in what a compiler says of the tail

_DECLARED = """\
extern "C" {
extern __attribute__((visibility("hidden"))) const char* const warmcc_names[];
extern __attribute__((visibility("hidden"))) const char* const warmcc_docs[];
extern __attribute__((visibility("hidden"))) void (*const warmcc_functions[])();
"""


def quoted(text: str) -> str:
    """A C++ string literal of UTF-8 text."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\", ord("\n"): "\\n", ord("?"): "\\?"}
    if all(char.isprintable() or char == "\n" for char in text) and text.isascii():
        return f'"{text.translate(plain)}"'
    return '"' + "".join(f"\\{byte:03o}" for byte in text.encode()) + '"'


def _documentation(text: str) -> str:
    """Stock pastes it between quotes: a backslash begins an escape."""
    return f'"{text}"' if "\\" in text else quoted(text)


def tail(signatures: list[Signature], functions: dict[str, str]) -> str:
    """What stands behind the user's code."""
    checks = "".join(
        f'static_assert(__is_same(decltype(&{name}), {kind.pointer}), "{MARK}: {name}");\n'
        for name, kind in zip(functions, signatures, strict=True)
    )
    addresses = ", ".join(f"reinterpret_cast<void (*)()>(&{name})" for name in functions)
    return (
        f"{checks}{_DECLARED}"
        f"const char* const warmcc_names[] = {{{', '.join(map(quoted, functions))}}};\n"
        "const char* const warmcc_docs[] = "
        f"{{{', '.join(map(_documentation, functions.values()))}}};\n"
        f"void (*const warmcc_functions[])() = {{{addresses}}};\n"
        "}\n"
    )


def entry(module: str) -> str:
    """The module's name and its entry point, behind the tail or in a unit of their own."""
    return (
        'extern "C" {\n'
        'extern __attribute__((visibility("hidden"))) const char* const warmcc_module_name;\n'
        f"const char* const warmcc_module_name = {quoted(module)};\n"
        '__attribute__((visibility("hidden"))) void* warmcc_init();\n'
        f'__attribute__((visibility("default"))) void* warmcc_entry() __asm__("PyInit_{module}");\n'
        "void* warmcc_entry() { return warmcc_init(); }\n"
        "}\n"
    )


def unit(signatures: list[Signature], *, error_handling: bool) -> str:
    """The binding unit: a table of the signatures.
    It needs the headers of ``torch/types.h`` and ``Python.h``."""
    entries = "".join(f"  entry(static_cast<{kind.pointer}>(nullptr)),\n" for kind in signatures)
    return (
        f"{_native('binding.h')}\n"
        "namespace warmcc {\n"
        f"const Entry entries[] = {{\n{entries}}};\n"
        f"const std::size_t entry_count = {len(signatures)};\n"
        f"const bool error_handling = {'true' if error_handling else 'false'};\n"
        "}  // namespace warmcc\n"
    )


def casters() -> str:
    """The casters' unit, the same for all extensions."""
    return f"{_CASTERS_HEADERS}{_native('binding.h')}\n{_native('casters.cc')}"


@functools.cache
def _native(name: str) -> str:
    return native.path(name).read_text(encoding="utf-8")
