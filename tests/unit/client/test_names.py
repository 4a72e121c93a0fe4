"""Which relative names can be kept, by words alone; objects are compared in
``tests/integration/client/test_objects.py``."""

from __future__ import annotations

import pytest

from warmcc.client.calls.arguments import NotCarried
from warmcc.client.calls.names import Names


@pytest.mark.parametrize(
    ("flags", "absolute"),
    [
        (["-I", "a", "-isystemb", "-iquote=c", "-I="], ["-I", "/p/./a", "-isystem/p/./b",
                                                        "-iquote=c", "-I="]),
        (["-I/a", "-Ia/../b", "-I.", "-idirafter", "c"], ["-I/a", "-I/p/./a/../b", "-I/p/./.",
                                                          "-idirafter", "/p/./c"]),
    ],
)  # fmt: skip
def test_folders_of_a_cpp_source(flags: list[str], absolute: list[str]) -> None:
    names = Names("/x.cpp", flags, "/p", is_cuda=False)
    assert names.source == "/x.cpp"
    assert names.flags == [*absolute, "-ffile-prefix-map=/p/./="]


def test_folders_of_a_cuda_source() -> None:
    flags = ["-I", "a", "--include-path=b", "-isystem=/c", "--system-include", "d"]
    assert Names("x.cu", flags, "/", is_cuda=True).flags == [
        "-I", "/./a", "--include-path=/./b", "-isystem=/c", "--system-include", "/./d",
        "-Xcompiler", "-ffile-prefix-map=/./=",
    ]  # fmt: skip


def test_what_is_absolute_stays_as_it_is() -> None:
    flags = ["-I/a", "-g", "-lineinfo", "-ffile-prefix-map=a=b"]
    assert Names("/x.cu", flags, "/a=b c", is_cuda=True).flags == flags


@pytest.mark.parametrize(
    ("flags", "folder", "is_cuda"),
    [
        (["-lineinfo"], "/p", True), (["-g"], "/p", True), ([], "/p q", True), ([], "/p,q", True),
        ([], "/p=q", False), (["-fmacro-prefix-map=a=b"], "/p", False),
        (["-Xcompiler", "-O2,-ffile-prefix-map=a=b"], "/p", True),
        (["-fcanon-prefix-map"], "/p", False), (["-I/p/./a"], "/p", False),
    ],
)  # fmt: skip
def test_what_cannot_be_kept(flags: list[str], folder: str, is_cuda: bool) -> None:
    with pytest.raises(NotCarried):
        Names("x.cu" if is_cuda else "x.cpp", flags, folder, is_cuda=is_cuda)


@pytest.mark.parametrize("flags", [["-g"], ["-ffile-prefix-map=/build/python=."]])
def test_what_debian_adds_is_kept(flags: list[str]) -> None:
    assert Names("x.cpp", flags, "/p q", is_cuda=False).flags == [
        *flags, "-ffile-prefix-map=/p q/./=",
    ]  # fmt: skip
