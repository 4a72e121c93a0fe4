"""The scanner that cuts bodies of functions out of torch's headers."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from warmcc.daemon.cuda.overlay import bodies


def squeezed(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace(" ;", ";").strip()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("inline int f(int x = 3) { return x; }", "inline int f(int x = 3);"),
        ('inline int f() { return g("}"); /* } */ // }\n}', "inline int f();"),
        ("namespace a::b { void f() { if (x) { y(); } } }", "namespace a::b { void f(); }"),
        ('extern "C" { inline void f() { g(); } }', 'extern "C" { inline void f(); }'),
        (
            "struct X : Y { int f() const noexcept { return 1; } };",
            "struct X : Y { int f() const noexcept; };",
        ),
        (
            "class X { public: X(int a) : a_(a), b_{a} {} ~X() { g(); } };",
            "class X { public: X(int a); ~X(); };",
        ),
        (
            "class X { X(int a) noexcept(true) : a_{a} { g(); } };",
            "class X { X(int a) noexcept(true); };",
        ),
        (
            "struct X { virtual void f() override { g(); } int a{0}; };",
            "struct X { virtual void f() override; int a{0}; };",
        ),
        (
            "struct X { bool operator()(int a) const { return a; } };",
            "struct X { bool operator()(int a) const; };",
        ),
        ("int X::f() const { return a; } int g();", "int g();"),
        ("a::B X::f(int (*g)(int)) { return {}; } int g();", "int g();"),
        (
            "#define F(x) int x() {\nint f() {\n#if A\n return 1;\n#endif\n}",
            "#define F(x) int x() { int f();",
        ),
    ],
)
def test_what_nobody_needs_is_cut(text: str, expected: str) -> None:
    assert squeezed(bodies.cut(text)) == squeezed(expected)


@pytest.mark.parametrize(
    "text",
    [
        "template <typename T> T f(T x) { return x; }",
        "template <int N = sizeof(int)> class X : Y { int f() { return 1; } };",
        "inline constexpr int f() { return 1; }",
        "constexpr X::X(int a) : a_{a}, b_(a) { g(); }",
        "inline auto f() { return 1; }",
        "inline decltype(auto) f() { return (x); }",
        "C10_HOST_DEVICE inline float f(float x) { return x; }",
        "inline C10_HOST_DEVICE X(float x) : x_(x) { g(); }",
        "__device__ float f() { return 1; }",
        "enum class E { A, B };",
        "struct X { enum E { A }; union { int a; float b; }; int c = 1, d[2] = {1, 2}; };",
        "static const std::vector<int> x{f(1), 2};",
        "X y = {[](int a) { return a; }};",
        "AT_FORALL_TYPES(F) int f() { return 1; }",
    ],
)
def test_what_may_be_needed_stays(text: str) -> None:
    assert bodies.cut(text) == text


def test_brackets_that_do_not_match_are_not_guessed_at() -> None:
    with pytest.raises(ValueError, match="not closed"):
        bodies.cut("inline int f() { if (x) { return 1; }")


def test_a_body_that_begins_under_a_condition_is_not_guessed_at() -> None:
    """As in ``c10/core/UndefinedTensorImpl.h`` of torch 2.4; one with a whole condition is cut."""
    opened_twice = "#ifdef A\ninline int f() {\n#else\ninline int g() {\n#endif\nreturn 1; }\n}"
    with pytest.raises(ValueError, match="another condition"):
        bodies.cut(opened_twice)
    whole = "inline int f() {\n#if A\n return 1;\n#elif B\n return 2;\n#endif\n}"
    assert squeezed(bodies.cut(whole)) == squeezed("inline int f() ;")


def test_what_is_left_compiles_to_the_same(tmp_path: Path) -> None:
    """Callers of what was cut are compiled to the same code, as all that they see are
    declarations.
    """
    header = """
#pragma once
#include <string>
namespace lib {
struct Base { virtual ~Base() { done(); } void done() { ++count; } int count = 0; };
class Thing : public Base {
 public:
  Thing(int a, std::string name) : a_{a}, name_(name + "{") { if (a) { done(); } }
  Thing& operator+=(const Thing& other) & { a_ += other.a_; return *this; }
  int size() const noexcept { return a_ == '{' ? 1 : 2; }
  template <typename T> T as() const { return static_cast<T>(a_); }
  static constexpr int four() { return 4; }
 private:
  int a_;
  std::string name_;
};
inline int size_of(const Thing& thing) { return thing.size(); }
}
"""
    user = """
#include "lib.h"
int use(lib::Thing& thing) {
  thing += thing;
  return lib::size_of(thing) + thing.size() + thing.as<int>() + thing.four();
}
"""
    made = []
    for text in (header, bodies.cut(header)):
        (tmp_path / "lib.h").write_text(text)
        (tmp_path / "user.cpp").write_text(user)
        command = [
            "g++",
            "-std=c++17",
            "-O0",
            "-fno-asynchronous-unwind-tables",
            "-S",
            "user.cpp",
            "-o",
            "user.s",
        ]
        subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
        assembly = (tmp_path / "user.s").read_text()
        function = assembly[assembly.index("_Z3useRN3lib5ThingE:") :].split(".size")[0]
        made.append(
            [line.removesuffix("@PLT") for line in re.findall(r"^\t([a-z].*)", function, re.M)]
        )
    assert made[0] == made[1] and any("size_of" in line for line in made[0])
