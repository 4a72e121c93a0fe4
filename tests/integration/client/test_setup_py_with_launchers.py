"""``CXX="warmcc c++"`` for a ``setup.py``: torch asks the first word of it what compiler it is, and
builds nothing for CUDA with one that it does not know.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.client.test_launcher import CXX, bin_folder

__all__ = ["bin_folder"]
ASKED = """
import sys
from torch.utils import cpp_extension
is_compatible, version = cpp_extension.get_compiler_abi_compatibility_and_version(sys.argv[1])
print(is_compatible, version)
"""


def asked(compiler: str, cxx: str, bin_folder: Path) -> tuple[str, str]:
    """What torch finds out of a compiler, and what it says of it."""
    path = os.pathsep.join([str(bin_folder), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", ASKED, compiler], env={**os.environ, "PATH": path, "CXX": cxx},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout, "".join(line for line in done.stderr.splitlines() if "compiler" in line)


@pytest.mark.parametrize("cxx", [f"warmcc {CXX}", "{bin}/warmcc c++", CXX, "warmcc"])
def test_torch_knows_the_compiler_behind_it(cxx: str, bin_folder: Path) -> None:
    """Also where CXX does not say which: it is the system's then."""
    cxx = cxx.replace("{bin}", str(bin_folder))
    stock = asked(CXX, CXX, bin_folder)
    assert stock[0].startswith("True ") and stock[0] != "True 0.0.0\n"
    assert asked("warmcc", cxx, bin_folder) == stock


def test_what_it_says_is_the_compilers(bin_folder: Path) -> None:
    path = os.pathsep.join([str(bin_folder), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "CXX": f"warmcc {CXX} -m64"}
    for words in (["-v"], ["-dumpversion"], ["-dumpmachine"]):
        ours, stock = (
            subprocess.run([*program, *words], env=environment, capture_output=True, text=True)
            for program in (["warmcc"], [CXX, "-m64"])
        )
        assert (ours.returncode, ours.stdout, ours.stderr) == (0, stock.stdout, stock.stderr)
