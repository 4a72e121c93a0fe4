"""Write the C++ of a binding: the tail of the user's unit, and the binding unit.

They meet in five symbols with hidden visibility: the user's unit defines tables of its functions, their names and
documentation and the module's name; the binding unit defines ``warmcc_init``. What the module exports is stock's:
``PyInit_<name>``.
"""

from __future__ import annotations

from warmcc.daemon.binding.signature import Signature

MARK = "warmcc-binding"  # in what a compiler says of the tail

_DECLARED = """\
extern "C" {
extern __attribute__((visibility("hidden"))) const char* const warmcc_module_name;
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


def tail(signatures: list[Signature], functions: dict[str, str], module: str) -> str:
    """What stands behind the user's code."""
    checks = "".join(
        f'static_assert(__is_same(decltype(&{name}), {kind.pointer}), "{MARK}: {name}");\n'
        for name, kind in zip(functions, signatures, strict=True)
    )
    addresses = ", ".join(f"reinterpret_cast<void (*)()>(&{name})" for name in functions)
    return (
        f"{checks}{_DECLARED}"
        f"const char* const warmcc_module_name = {quoted(module)};\n"
        f"const char* const warmcc_names[] = {{{', '.join(map(quoted, functions))}}};\n"
        f"const char* const warmcc_docs[] = {{{', '.join(map(quoted, functions.values()))}}};\n"
        f"void (*const warmcc_functions[])() = {{{addresses}}};\n"
        '__attribute__((visibility("hidden"))) void* warmcc_init();\n'
        f'__attribute__((visibility("default"))) void* warmcc_entry() __asm__("PyInit_{module}");\n'
        "void* warmcc_entry() { return warmcc_init(); }\n"
        "}\n"
    )


def unit(signatures: list[Signature], *, error_handling: bool) -> str:
    """The binding unit, through pybind11 and in just the words that stock uses."""
    wrap = "torch::wrap_pybind_function" if error_handling else ""
    functions = [f"reinterpret_cast<{kind.pointer}>(warmcc_functions[{i}])" for i, kind in enumerate(signatures)]
    lines = [f"  m.def(warmcc_names[{i}], {wrap}({one}), warmcc_docs[{i}]);\n" for i, one in enumerate(functions)]
    return (
        "#include <torch/extension.h>\n"
        "#undef PYBIND11_EXPORT\n"
        '#define PYBIND11_EXPORT __attribute__((visibility("hidden")))\n'
        f"{_DECLARED}"
        '__attribute__((visibility("hidden"))) void* warmcc_init();\n'
        "}\n"
        "PYBIND11_MODULE(warmcc_binding, m) {\n"
        '  m.attr("__name__") = warmcc_module_name;\n'
        f"{''.join(lines)}"
        "}\n"
        "void* warmcc_init() { return PyInit_warmcc_binding(); }\n"
    )
