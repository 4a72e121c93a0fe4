"""The overlay stands in front of torch's headers, however these are given, and behind the user's:
asked of a real preprocessor.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from warmcc.daemon.cuda.overlay.searching import in_front


@pytest.mark.parametrize("given", ["-isystem {}", "-I{}", "-I {}", "-I{0} -isystem {0}"])
def test_which_header_is_found(given: str, tmp_path: Path) -> None:
    for name in ("user", "torch/include", "overlay"):
        (tmp_path / name / "ATen" / "core").mkdir(parents=True)
        (tmp_path / name / "ATen" / "types.h").write_text(f"it_is_{name[:4]}\n")
        (tmp_path / name / f"{name[:4]}.h").write_text(f"only_{name[:4]}\n")
    (tmp_path / "user" / "ATen" / "core").rmdir()
    (tmp_path / "user" / "ATen" / "types.h").unlink()
    words = [f"-I{tmp_path}/user", *given.format(f"{tmp_path}/torch/include").split(), "-O2"]
    text = "#include <ATen/types.h>\n#include <user.h>\n#include <torc.h>\n"
    for folders, first in (([], "torc"), ([f"{tmp_path}/overlay"], "over")):
        done = subprocess.run(
            ["g++", "-E", "-P", "-x", "c++", *in_front(words, folders), "-"],
            input=text, capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stdout.split() == [f"it_is_{first}", "only_user", "only_torc"]


def test_without_folders_of_headers_it_comes_last() -> None:
    assert in_front(["-O2"], ["/a"]) == ["-O2", "-isystem", "/a"]
