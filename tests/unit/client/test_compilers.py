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
     ("", False), ("clang++", False)],
)  # fmt: skip
def test_nvcc_takes_the_gcc_that_is_found_first(
    found: Path, monkeypatch: pytest.MonkeyPatch, host: str, same: bool
) -> None:
    """Whatever compiles C++: an object of another version's would be a wrong one."""
    host = host.format(found=found)
    monkeypatch.setenv("CXX", host)
    expected = {"N": "1"} if same or not host else {"N": "1", "CC": host}
    assert compilers.with_host({"CC": "g++-13", "N": "1"}, host) == expected


@pytest.mark.parametrize("host", ["g++-13", "/opt/gcc/bin/gcc"])
def test_nvccs_host_compiler_is_no_flag(host: str) -> None:
    for named in (["-ccbin", host], [f"-ccbin={host}"], [f"--compiler-bindir={host}"]):
        assert compilers.split_host(["-O3", *named, "-DN=1"]) == (["-O3", "-DN=1"], host)


@pytest.mark.parametrize(
    "flags",
    [["-O3"], ["-ccbin", "a", "-ccbin", "b"], ["-ccbin=ccache gcc"], ["-ccbin", "./gcc"],
     ["-ccbin"], ["-ccbin="]],
)  # fmt: skip
def test_a_host_compiler_that_no_request_names_stays_a_flag(flags: list[str]) -> None:
    assert compilers.split_host(flags) == (flags, "")
