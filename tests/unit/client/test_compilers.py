"""Compilers that do the same work by another name, among files that stand for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from warmcc.client.calls import compilers


@pytest.fixture(autouse=True)
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with all compilers that are found."""
    for name in ("gcc-12", "g++-12", "g++-13", "clang++"):
        (tmp_path / name).touch(mode=0o755)
    for name in ("gcc", "g++"):
        (tmp_path / name).symlink_to(f"{name}-12")
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_gcc_stands_for_the_usual_compiler(found: Path) -> None:
    assert compilers.for_cpp("gcc", "c++ -v") == str(found / "g++-12")
    assert compilers.for_cpp("gcc", "g++") == "g++"
    assert compilers.for_cpp("clang++", "g++") == str(found / "clang++")


@pytest.mark.parametrize(
    ("host", "same"),
    [("gcc", True), ("g++", True), ("{found}/g++-12", True), ("g++-13", False), ("none", False),
     ("", False), ("ccache gcc", False), ("clang++", False)],
)  # fmt: skip
def test_nvcc_takes_the_gcc_that_is_found_first(
    found: Path, monkeypatch: pytest.MonkeyPatch, host: str, same: bool
) -> None:
    """Whatever compiles C++: an object of another version's would be a wrong one."""
    host = host.format(found=found)
    monkeypatch.setenv("CXX", host)
    assert compilers.is_nvccs(host) == same
    for named in (["-ccbin", host], [f"-ccbin={host}"], [f"--compiler-bindir={host}"]):
        flags = ["-O3", *named, "-DN=1"]
        assert compilers.without_host(flags) == (["-O3", "-DN=1"] if same else flags)
