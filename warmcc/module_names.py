"""The names that nvcc makes up for a module: they differ between two builds of the same text, and
are taken out of what is compared.
"""

from __future__ import annotations

import re

# In what nvcc writes, a module's name ends in a second digest, or in the name of something that the
# module defines. How long it is stands in front of it.
_OWN_NAME = re.compile(r"_[0-9a-f]{8}_\d+_\w+?_cu_[0-9a-f]{8}")
_ANY_NAME = re.compile(r"_[0-9a-f]{8}_\d+_\w+?_cu_\w+")
_MANGLED_NAME = re.compile(r"(\d+)(_(?:INTERNAL|GLOBAL__N_))(?=(_[0-9a-f]{8}_\d+_\w+))")
_LENGTH = re.compile(r"\d+(_(?:INTERNAL|GLOBAL__N_))")
# With ``-lineinfo``, PTX has the mangled names of inlined functions as numbers.
_BYTES = re.compile(r"(?:^[ \t]*\.b8 [\d, ]+\n)+", re.MULTILINE)


def without(text: str) -> str:
    r"""PTX, or a listing of symbols or machine code, without what differs from one module to
    the other.

    >>> name = "d78ca6d4_7_cuda_cu_weights"
    >>> without(f"_ZN36_INTERNAL_{name}3std1xE of {name}")
    '_ZN_INTERNAL_3std1xE of '
    >>> name = "0e5b9dd5_7_cuda_cu_b2f1a07c"
    >>> without(f"_ZN37_INTERNAL_{name}3std1xE of {name}")
    '_ZN_INTERNAL_3std1xE of '
    >>> name = "_ZN37_INTERNAL_0e5b9dd5_7_cuda_cu_b2f1a07c3std1xE"
    >>> without(f"\t.b8 {','.join(str(ord(one)) for one in name)}\n\t.b8 0\n")
    '.b8 _ZN_INTERNAL_3std1xE\x00\n'
    """
    text = _BYTES.sub(_as_characters, text)
    names = {found[1:] for found in _mangled_names(text)}
    names.update(name[1:] for name in _OWN_NAME.findall(text))
    for name in sorted(names, key=len, reverse=True):
        text = text.replace(name, "")
    return _LENGTH.sub(r"\1", text)


def _as_characters(rows: re.Match[str]) -> str:
    numbers = re.findall(r"\d+(?=[,\n])", rows[0])
    return f".b8 {''.join(chr(int(one)) for one in numbers)}\n"


def _mangled_names(text: str) -> set[str]:
    """Modules' names in mangled ones. The digits of a length may follow upon a name that ends in
    one.
    """
    found = set()
    for digits, start, rest in set(_MANGLED_NAME.findall(text)):
        sizes = (int(digits[index:]) - len(start) for index in reversed(range(len(digits))))
        named = (rest[:size] for size in sizes if 0 < size <= len(rest))
        found.update([next((name for name in named if _ANY_NAME.fullmatch(name)), "")])
    return found - {""}
