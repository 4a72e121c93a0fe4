"""Unique symbols of a shared object: the user's become weak, those of torch's libraries stay."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from warmcc.client.live.reload import symbols

SOURCE = """
inline int mine() { static int known = 1; return known++; }
template <typename T> struct Kept { static inline T value = 1; };
namespace atlas { inline int near() { static int known = 2; return known++; } }
namespace at { inline int theirs() { static int known = 3; return known++; } }
namespace c10 { struct Type { static int of() { static int known = 4; return known++; } }; }
namespace std { inline int standard() { static int known = 5; return known++; } }
int all() {
  return mine() + Kept<int>::value++ + atlas::near() + at::theirs() + c10::Type::of()
         + std::standard();
}
"""


def unique(data: bytes) -> set[str]:
    found = symbols._table(data, symbols._DYNSYM)
    return {one.name for one in found if one.info >> 4 == symbols._UNIQUE}


@pytest.mark.parametrize("flags", [[], ["-s"]])
def test_the_users_statics_are_apart(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "a.cpp").write_text(SOURCE)
    words = ["g++", "-std=c++17", "-shared", "-fPIC", "-fgnu-unique", *flags, "a.cpp", "-o", "a.so"]
    subprocess.run(words, cwd=tmp_path, check=True)
    data = (tmp_path / "a.so").read_bytes()
    before, after = unique(data), unique(symbols.apart(data))
    torchs = {name for name in before if any(part in name for part in ("2at6", "3c10", "St8"))}
    assert len(torchs) == 3
    assert before > torchs and after == torchs
    assert len(symbols.apart(data)) == len(data)


@pytest.mark.parametrize("length", [0, 6, 200])
def test_what_is_no_object(length: int) -> None:
    with pytest.raises(symbols.NotReadable):
        symbols.apart((b"\x7fELF\x02\x01" + b"\xff" * 194)[:length])
