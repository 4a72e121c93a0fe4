"""What a shared object's symbols tell about unloading it, on objects that g++ makes here."""

from __future__ import annotations

import _ctypes
import ctypes
import subprocess
from pathlib import Path

import pytest

from warmcc.client.live.reload.symbols import NotReadable, Symbols

HARMLESS = (
    "template <class T> struct Count { static int n; };\ntemplate <class T> int Count<T>::n = 7;\n"
)
HARMLESS += 'extern "C" int* count() { return &Count<int>::n; }\n'


def compiled(folder: Path, text: str, *flags: str) -> Path:
    source = folder / "one.cpp"
    source.write_text(text)
    made = source.with_suffix(".so")
    subprocess.run(["c++", "-shared", "-fPIC", *flags, str(source), "-o", str(made)], check=True)
    return made


def why_kept(path: Path) -> str | None:
    return Symbols(path.read_bytes()).why_kept(lambda name: False)


def is_loaded(path: Path) -> bool:
    return str(path) in Path("/proc/self/maps").read_text()


def test_an_object_with_unique_symbols_can_be_unloaded_after_all(tmp_path: Path) -> None:
    path = compiled(tmp_path, HARMLESS)
    data = path.read_bytes()
    copy = tmp_path / "copy.so"
    copy.write_bytes(Symbols(data).unloadable(data, lambda name: False))
    assert why_kept(path) is None
    for one, stays in ((path, True), (copy, False)):
        handle = _ctypes.dlopen(str(one), 2)
        count = ctypes.CDLL(str(one), handle=handle).count
        count.restype = ctypes.POINTER(ctypes.c_int)
        assert count()[0] == 7
        _ctypes.dlclose(handle)
        assert is_loaded(one) is stays


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "struct Node { virtual ~Node() {} };\nNode* make() { return new Node; }",
            "virtual functions (4Node)",
        ),
        (
            "#include <functional>\nstd::function<int()> f() { return [] { return 1; }; }",
            "hands out functions",
        ),
        (
            "#include <thread>\nvoid f() { std::thread([] {}).detach(); }",
            "starts threads|virtual functions",
        ),
        ("#include <signal.h>\nvoid f() { signal(SIGUSR1, SIG_IGN); }", "handles signals"),
        (
            'extern "C" int Py_AtExit(void (*)());\nvoid g() {}\nvoid f() { Py_AtExit(g); }',
            "leaves callbacks",
        ),
        (
            "namespace torch { struct Library { Library(); }; }\nvoid f() { torch::Library x; }",
            "registers operators",
        ),
        (
            "namespace at { struct TensorMaker { void make(); }; }\n"
            "void f() { at::TensorMaker().make(); }",
            "memory",
        ),
    ],
)
def test_what_may_be_pointed_into_is_kept(tmp_path: Path, text: str, reason: str) -> None:
    found = why_kept(compiled(tmp_path, text))
    assert found is not None and any(part in found for part in reason.split("|"))


def test_classes_of_torchs_libraries_are_taken_from_there(tmp_path: Path) -> None:
    path = compiled(
        tmp_path, "struct Node { virtual ~Node() {} };\nNode* make() { return new Node; }"
    )
    data = path.read_bytes()
    symbols = Symbols(data)
    assert symbols.why_kept(lambda name: name == "_ZTV4Node") is None
    copy = tmp_path / "copy.so"
    copy.write_bytes(symbols.unloadable(data, lambda name: name == "_ZTV4Node"))
    listed = subprocess.run(
        ["nm", "-D", str(copy)], capture_output=True, text=True, check=True
    ).stdout
    assert "U _ZTV4Node" in listed


def test_what_cannot_be_told_is_said(tmp_path: Path) -> None:
    stripped = compiled(tmp_path, HARMLESS, "-s").read_bytes()
    whole = compiled(tmp_path, HARMLESS).read_bytes()
    for data, said in (
        (stripped, "stripped"),
        (b"", "not a 64-bit ELF"),
        (whole[:400], "cannot be read"),
    ):
        with pytest.raises(NotReadable, match=said):
            Symbols(data)
