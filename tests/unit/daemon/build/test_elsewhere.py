"""Objects of g++'s with the names of another folder: the same as what g++ makes there."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
from pathlib import Path

import pytest

from tests.support.host_code import code_of
from warmcc.daemon.build.elsewhere import object_strings, said_paths

pytestmark = pytest.mark.skipif(
    platform.machine() != "x86_64", reason="objects of other processors are not moved"
)

CHECK = '::c10::detail::torchCheckFail( __func__, "/p/x.cpp", static_cast<uint32_t>(7), "no")'
SOURCE = """#include "own.h"
extern "C" void hand_on(const char* file, int line);
extern "C" const char* other() { return "some other string, which stays where it is"; }
extern "C" int check(int value) {
  if (value < 0) hand_on(__FILE__, __LINE__);
  if (value > 9) hand_on(of_header(), __LINE__);
  return own<int>(value);
}
"""
HEADER = """template <class T> T own(T value) { return value * 3; }
inline const char* of_header() { return __FILE__; }
"""


def compiled(folder: Path, source: str, *flags: str) -> Path:
    """An object, compiled in a folder below a new one, by the name from the root on."""
    (folder / "build").mkdir(parents=True, exist_ok=True)
    (folder / "x.cpp").write_text(source)
    (folder / "own.h").write_text(HEADER)
    made = folder / "build" / "x.o"
    subprocess.run(
        ["g++", *flags, "-fPIC", "-c", f"{folder}/x.cpp", "-o", str(made)],
        cwd=folder / "build", check=True,
    )  # fmt: skip
    return made


def moved(made: Path, old: Path, new: Path, place: Path) -> Path:
    place.write_bytes(object_strings.moved(made.read_bytes(), str(old), str(new)))
    return place


def dumped(path: Path, *what: str) -> str:
    argv = ["readelf", "--wide", *what, str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.replace(str(path), "it")


def without_places(made: Path) -> dict[str, str]:
    """The code of an object, wherever in its section a string is."""
    return {name: re.sub(r"(\.rodata)[+-]?", r"\1", text) for name, text in code_of(made).items()}


def strings(path: Path) -> set[bytes]:
    """All that an object holds outside of what debuggers read."""
    place = path.with_suffix(".stripped")
    subprocess.run(["strip", "--strip-debug", "-o", str(place), str(path)], check=True)
    return {text for text in re.split(rb"[^ -~]", place.read_bytes()) if len(text) > 5}


def said(made: Path) -> list[str]:
    """The names that the compiled code hands on."""
    beside = made.parent / "beside.c"
    beside.write_text("const char* last; void hand_on(const char* f, int l) { last = f; }\n")
    library = made.with_suffix(".so")
    argv = ["gcc", "-shared", "-fPIC", str(made), str(beside), "-o", str(library)]
    subprocess.run(argv, check=True)
    loaded, found = ctypes.CDLL(str(library)), []
    for value in (-1, 10):
        loaded.check(value)
        found.append(ctypes.c_char_p.in_dll(loaded, "last").value or b"")
    return [os.fsdecode(name) for name in found]


@pytest.mark.parametrize("flags", [["-O2"], ["-O2", "-g"], ["-O3", "-g3"], ["-O0", "-g"]], ids=str)
@pytest.mark.parametrize("name", ["b", "a-much-longer-name-than-the-other-one", "0"])
def test_it_is_what_the_compiler_makes_there(tmp_path: Path, flags: list[str], name: str) -> None:
    old, new = tmp_path / "one", tmp_path / name
    first, theirs = compiled(old, SOURCE, *flags), compiled(new, SOURCE, *flags)
    ours = moved(first, old, new, tmp_path / "ours.o")
    assert str(old).encode() not in ours.read_bytes()
    assert without_places(ours) == without_places(theirs)
    for what in ("--symbols", "--debug-dump=decodedline"):
        assert sorted(line.split()[2:] for line in dumped(ours, what).splitlines()) == sorted(
            line.split()[2:] for line in dumped(theirs, what).splitlines()
        )
    assert strings(ours) == strings(theirs)
    assert said(ours) == [f"{new}/x.cpp", f"{new}/own.h"]


@pytest.mark.parametrize(
    ("source", "flags", "why"),
    [
        ("static const char x[] = __FILE__; const char* f() { return x; }", ["-O0"], "variable"),
        ("char name[] = __FILE__;", ["-O2"], "something else than a string"),
        ("const char* f() { return __FILE__ + 3; }", ["-O2"], "way|middle"),
        ("const char* const f = __FILE__ + 3; auto g() { return &f; }", ["-O2"], "way|middle"),
        ('const char* f() { return "/mnt" __FILE__; }', ["-O2"], "longer name"),
        ("int NAME() { return 1; }", ["-O2"], "called by the folder"),
        ("const char* f() { return __FILE__ + 3; }", ["-O0"], "middle"),
        ("const char* f() { return __FILE__; }", ["-O2", "-g", "-gz"], "compressed"),
    ],
    ids=[
        "at O0", "array", "a part", "a constant", "within a path", "a symbol", "a part at O0",
        "compressed",
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, source: str, flags: list[str], why: str) -> None:
    source = source.replace("NAME", re.sub(r"\W", "_", str(tmp_path / "one")))
    made = compiled(tmp_path / "one", source, *flags)
    with pytest.raises(object_strings.CannotMove, match=why):
        moved(made, tmp_path / "one", tmp_path / "two", tmp_path / "ours.o")


def test_other_files_are_refused(tmp_path: Path) -> None:
    made = compiled(tmp_path / "one", "int x;").read_bytes()
    for_aarch64 = made[:18] + b"\xb7" + made[19:]
    for content in (for_aarch64, made[:-70], b"", b"!<arch>\n", b"\x7fELF\x02\x01"):
        with pytest.raises(object_strings.CannotMove):
            object_strings.moved(content, "/p/one", "/p/two")


def test_the_files_of_a_text() -> None:
    text = b'# 0 "/p/x.cpp"\n# 0 "<built-in>"\n# 1 "/p/a\\"b.h" 1\nint x;\n  # 9 "no"\n'
    assert said_paths.files(text) == {"/p/x.cpp", "<built-in>", '/p/a"b.h'}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (CHECK, None),
        ("int x = 1;", None),
        ('const char* s = "/pq/x.cpp";', "used"),
        ('# 1 "/p/x.cpp" 1\nint x;\n# 3 "/usr/include/stdio.h" 3\nint y;\n', None),
        ('__assert_fail ("x == 1", "/p/x.cpp", 3, __extension__ __PRETTY_FUNCTION__)', None),
        ('auto n = __builtin_strlen("/p/x.cpp");', "used"),
        (CHECK.replace('"no"', 'std::string("/p/x.cpp")'), "used"),
        (CHECK.replace("::c10", "::mine"), "used"),
        (CHECK.replace("/x.cpp", '/x.cpp" "/y'), "used"),
        ("#pragma message(/p)\n", "used"),
        ("auto where = std::source_location::current();", "ask"),
        ("const char* f() { return __builtin_FILE(); }", "ask"),
        ('# 1 "/q/log.h" 1\nvoid f(SourceLocation at = SourceLocation::current());', "ask"),
        ("namespace c10 { namespace detail { void torchCheckFail(...); } }", "namespaces"),
        ("namespace mine::torch::detail { struct TorchLibraryInit; }", "namespaces"),
        ("namespace mine { struct torch { struct detail; }; }", "namespaces"),
        ("namespace mine { namespace torch = other; }", "namespaces"),
        ("using namespace torch::indexing; using torch::Tensor; using c10::optional;", None),
        ("namespace F = torch::nn::functional; struct S : torch::nn::Module {};", None),
    ],
)  # fmt: skip
def test_where_a_text_names_its_folder(text: str, why: str | None) -> None:
    found = said_paths.why_it_depends(text.encode(), "/p")
    assert (found is None) if why is None else (found is not None and why in found)
