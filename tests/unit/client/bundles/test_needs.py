"""What an artifact needs: read from the file, and compared with the machine."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from warmcc.client.bundles import elf, gpus, identity
from warmcc.client.bundles.identity import Here
from warmcc.client.bundles.layout import Needs
from warmcc.errors import BundleError

HERE = Here(
    "x86_64", ".cpython-311-x86_64-linux-gnu.so", "2.12.0", "abc", "13.0", True, "glibc 2.36"
)
NEEDS = Needs("x86_64", HERE.abi, "2.12.0", "abc", "13.0", True, {"GLIBC": "2.34"})


def test_the_same_is_no_mismatch() -> None:
    assert identity.mismatch(NEEDS, HERE) == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"machine": "aarch64"}, "machine: it was built for aarch64, here is x86_64"),
        ({"abi": ".cp312.so"}, f"Python: it was built for .cp312.so, here is {HERE.abi}"),
        ({"torch": "2.13.0"}, "torch: it was built for 2.13.0, here is 2.12.0"),
        ({"torch_git": "def"}, "torch's commit: it was built for def, here is abc"),
        ({"cuda": ""}, "torch's CUDA version: it was built for none, here is 13.0"),
        ({"cxx11_abi": False}, "torch's C++11 ABI: it was built for False, here is True"),
        ({"symbols": {"GLIBC": "2.37"}}, "glibc: it needs 2.37, here is 2.36"),
        ({"processor": ["avx9000"]}, "processor: it was built with -march=native for one w"),
    ],
    ids=str,
)  # fmt: skip
def test_each_mismatch_has_its_message(changes: dict[str, object], said: str) -> None:
    assert identity.mismatch(msgspec.structs.replace(NEEDS, **changes), HERE).startswith(said)


def test_a_newer_glibc_is_fine_and_another_libc_is_none() -> None:
    assert identity.mismatch(NEEDS, HERE._replace(glibc="glibc 2.100")) == ""
    assert "here is another library" in identity.mismatch(NEEDS, HERE._replace(glibc=""))


def test_the_own_processor_has_what_it_has() -> None:
    assert identity.processor()
    assert (
        identity.mismatch(msgspec.structs.replace(NEEDS, processor=identity.processor()), HERE)
        == ""
    )


def test_a_missing_symbol_of_the_libstdcxx_that_is_loaded() -> None:
    import torch  # noqa: F401  # loads it

    newer = msgspec.structs.replace(NEEDS, symbols={"GLIBCXX": "3.4.999"})
    assert re.match(
        r"libstdc\+\+: it needs GLIBCXX_3\.4\.999, which /.*libstdc\+\+",
        identity.mismatch(newer, HERE),
    )
    older = msgspec.structs.replace(NEEDS, symbols={"GLIBCXX": "3.4.20", "CXXABI": "1.3"})
    assert identity.mismatch(older, HERE) == ""


def test_a_missing_library() -> None:
    assert identity.missing_library(msgspec.structs.replace(NEEDS, libraries=["libc.so.6"])) == ""
    missing = msgspec.structs.replace(NEEDS, libraries=["libwarmcc_none.so.7"])
    assert "libwarmcc_none.so.7" in identity.missing_library(missing)
    assert identity.missing_library(msgspec.structs.replace(missing, search="/opt/lib")) == ""


@pytest.mark.parametrize(
    ("capabilities", "driver", "said"),
    [
        ([(9, 0)], (13, 0), ""),
        ([(8, 6)], (13, 0), ""),
        ([(10, 0)], (13, 0), "GPU architecture: it has code for sm_80, sm_90a, here is sm_100"),
        ([(7, 5), (8, 0)], (13, 0), ""),
        ([], (13, 0), ""),
        ([(9, 0)], (12, 8), "driver: it needs one for CUDA 13.0, the one here is for CUDA 12.8"),
    ],
)
def test_gpus(capabilities: list[tuple[int, int]], driver: tuple[int, int], said: str) -> None:
    found = gpus.Gpus(capabilities, driver)
    assert gpus.mismatch(["sm_80", "sm_90a"], "13.0", found) == said
    assert gpus.mismatch(["sm_80"], "13.0", None) == gpus.mismatch([], "13.0", found) == ""


def test_architectures_are_read_from_commands_where_there_is_no_cuobjdump(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gpus, "cuobjdump", lambda: None)
    codes = "arch=compute_80,code=sm_80", "arch=compute_90a,code=[sm_90a,compute_90a]"
    command = f"nvcc -gencode={codes[0]} -gencode {codes[1]} k"
    assert gpus.in_file("/none", [command]) == ["compute_90a", "sm_80", "sm_90a"]


def test_a_shared_object_is_read_as_objdump_reads_it(tmp_path: Path) -> None:
    source = tmp_path / "a.cpp"
    source.write_text(
        "#include <string>\n#include <cmath>\n"
        "std::string f(double x) { return std::to_string(std::pow(x, 2)); }\n"
    )
    made = tmp_path / "a.so"
    subprocess.run(
        ["g++", "-shared", "-fPIC", source, "-o", made, "-lm", "-Wl,-rpath,/opt/x"], check=True
    )
    found = elf.read(str(made))
    told = subprocess.run(
        ["objdump", "-p", made], check=True, capture_output=True, text=True
    ).stdout
    assert found.libraries == re.findall(r"NEEDED\s+(\S+)", told)
    assert found.search == "/opt/x" and found.machine == "x86_64"
    for name, version in found.symbols.items():
        versions = re.findall(rf"\b{name}_([\d.]+)$", told, re.M)
        assert version == max(versions, key=elf.as_numbers)
    assert {"GLIBCXX", "GLIBC"} <= found.symbols.keys()


@pytest.mark.parametrize(
    "data", [b"", b"#!/bin/sh\n", b"\x7fELF\x02\x01", b"\x7fELF\x02\x01" + b"\xff" * 80]
)
def test_what_is_no_shared_object(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "a.so"
    path.write_bytes(data)
    with pytest.raises(BundleError, match="is not a shared object that can be packed"):
        elf.read(str(path))
