"""Signatures as they are read from the user's C++, and what is left to pybind11."""

from __future__ import annotations

import pytest

from warmcc.daemon.plan import binding
from warmcc.daemon.plan.binding import signature, tokens
from warmcc.daemon.plan.binding.signature import UnreadableSignature


def read(text: str, name: str = "f") -> str:
    return signature.find(tokens.split(text), name).pointer


@pytest.mark.parametrize(
    ("text", "pointer"),
    [
        ("int f();", "int (*)()"),
        ("static inline void f(void) {}", "void (*)()"),
        ("torch::Tensor f(at::Tensor a, const Tensor& b, Tensor &c) {",
         "::at::Tensor (*)(::at::Tensor, const ::at::Tensor&, ::at::Tensor&)"),
        ("long int f(unsigned a, unsigned long long b, signed char) {", None),
        ("long int f(unsigned a, unsigned long long b) {",
            "long (*)(unsigned int, unsigned long long)"),
        ("double f(float const x, const std::string &s = \"a, b)\") {",
            "double (*)(float, const ::std::string&)"),
        ("std::vector<at::Tensor> f("
         "std::optional<c10::Scalar> s = {1, 2}, int64_t n = g<1, 2>()) {",
         "::std::vector<::at::Tensor> (*)(::std::optional<::c10::Scalar>, ::std::int64_t)"),
        ("std::tuple<int, std::vector<std::pair<int, double>>> f(at::IntArrayRef a) {",
         "::std::tuple<int, ::std::vector<::std::pair<int, double>>> "
         "(*)(::c10::ArrayRef<::std::int64_t>)"),
        ("#define X int f(double)\n// int f(float);\n"
         "/* int f(short); */ const char* s = \"int f(long);\";\n"
         "int f(int) {}",
         "int (*)(int)"),
        ("const char* s = R\"x(int f(long);)\" )x\"; int f(int) {}", "int (*)(int)"),
        ("int f(int); int g() { return f(1); } int f(int a) { return a; }", "int (*)(int)"),
        ("int f(at::ArrayRef<int64_t> a, c10::SymIntArrayRef b) {",
         "int (*)(::c10::ArrayRef<::std::int64_t>, ::c10::ArrayRef<::c10::SymInt>)"),
        ("int f(at::ArrayRef<double> a) {", None),
        ("int f(at::TensorList a) {", None),
        ("int f(std::optional<at::IntArrayRef> a) {", None),
        ("int f(std::tuple<int, int, int, int, int, int, int, int, int> a) {", None),
        ("int f(std::pair<int> a) {", None),
        ("int f(std::vector<int, A> a) {", None),
        (f"int f({', '.join(['int'] * 40)});", f"int (*)({', '.join(['int'] * 40)})"),
        ("auto f(int a) { return a; }", None),
        ("int f(int* a) {", None),
        ("int f(int a[3]) {", None),
        ("int f(int& a) {", None),
        ("int& f() {", None),
        ("int f(int a) noexcept {", None),
        ("int f(int a, ...) {", None),
        ("template <class T> int f(T a) {", None),
        ("__attribute__((x)) int f(int a) {", None),
        ("int f(int); int f(double);", None),
        ("namespace n { int f(int); }", None),
        ("struct S { int f(int); };", None),
        ("extern \"C\" int f(int a) {", None),
        ("my::Type f(int a) {", None),
        ("int (f)(int a) {", None),
    ],
)  # fmt: skip
def test_signatures(text: str, pointer: str | None) -> None:
    if pointer is not None:
        assert read(text) == pointer
        return
    with pytest.raises(UnreadableSignature):
        read(text)


@pytest.mark.parametrize("text", ['"open', 'R"x(', "'", "\x00"])
def test_a_source_that_cannot_be_read_is_left_to_pybind11(text: str) -> None:
    found = binding.choose([f"int f(int a) {{ }} {text}"], {"f": "f"}, "m", error_handling=False)
    assert isinstance(found, (binding.Unbindable, binding.Binding))


def test_equal_signatures_share_their_binding_unit() -> None:
    one = binding.choose(["int f(int a) { return a; }"], {"f": "doc"}, "m", error_handling=False)
    two = binding.choose(["int g(int b) { return -b; }"], {"g": "other"}, "n", error_handling=False)
    three = binding.choose(
        ["int g(long b) { return -b; }"], {"g": "other"}, "n", error_handling=False
    )
    assert isinstance(one, binding.Binding)
    assert isinstance(two, binding.Binding)
    assert isinstance(three, binding.Binding)
    assert one.unit == two.unit != three.unit
    assert one.tail != two.tail


@pytest.mark.parametrize("text", ['says "hello"', 'adds", pybind11::arg("a"), "', "two\nlines"])
def test_documentation_that_ends_its_quotes_is_left_to_pybind11(text: str) -> None:
    """Stock pastes it between quotes, and g++ decides what that is."""
    functions = {"f": "adds", "g": text}
    source = ["int f(int a) { return a; } int g(int a) { return a; }"]
    assert isinstance(binding.choose(source, functions, "m", error_handling=False),
                      binding.Unbindable)  # fmt: skip
    functions["g"] = "it's plain\\ttext"
    assert isinstance(binding.choose(source, functions, "m", error_handling=False),
                      binding.Binding)  # fmt: skip
