"""Whether a unit's code can depend on the name of its folder, told from its preprocessed text.

A source names its folder where ``__FILE__`` stands, in most extensions within torch's checks. These
hand the name on, as a pointer, to functions of torch's libraries, which g++ does not see: what it
makes of the rest is the same whatever the name is. Of any other place that is not known: the length
of a name that g++ sees can be computed, compared, or copied by instructions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MARKER = re.compile(rb'^# \d+ "((?:[^"\\\n]|\\.)*)"[^\n]*\n', re.M)
_LINE = r"static_cast<uint32_t>\(\d+\)"
# In what torch's macros become, and assert; PATH is a name below the folder
_HANDED_ON = (
    rf'::c10::detail::torch(?:Check|InternalAssert)Fail\(\s*__func__, "PATH", {_LINE},',
    r'" INTERNAL ASSERT FAILED at " "\\"PATH\\"" ":" "\d+" ", please report a bug to PyTorch. "',
    rf'throw ::c10::\w*Error\(\s*\{{__func__, "PATH", {_LINE}\}}',
    rf'::c10::warn\(::c10::Warning\(\s*::c10::\w*Warning\(\), \{{__func__, "PATH", {_LINE}\}}',
    r'torch::detail::TorchLibraryInit \w+\([^;{}"]*"\w+",[^;{}"]*, "PATH", \d+\);',
    rf'::c10::cuda::c10_cuda_check_implementation\([^;{{}}"]*, "PATH", __func__, {_LINE},',
)
# In code for a device it would put the name there, where nothing can be replaced
_ASSERTS = r'__assert_fail \("(?:[^"\\\n]|\\.)*", "PATH", \d+, __extension__ __PRETTY_FUNCTION__\)'
_BESIDE = 600  # bytes in front of a name and behind it that are looked at
_ASKS_BY_WORD = re.compile(rb"__(?:BASE_)?FILE(?:_NAME)?__")
# What gives a file's name without a word of the preprocessor's
_ASKS = re.compile(rb"source_location|SourceLocation|__builtin_(?:FILE|source_location|LINE)")
_ASKS_ITS_CALLER = re.compile(rb"=\s*(?:\w*::)*(?:source_location|SourceLocation)::current\(")
_OPENS = re.compile(rb"\bnamespace\s+(?:c10|torch)\b")  # where a function of such a name could be


def asks(content: bytes) -> bool:
    """Whether a file of a project asks for a file's name by itself, and not by torch's macros."""
    return _ASKS_BY_WORD.search(content) is not None or _ASKS.search(content) is not None


def why_it_depends(text: bytes, folder: str, *, for_devices: bool = False) -> str | None:
    """Why the code of a preprocessed unit may depend on the name of the folder in which its
    sources are; None where it cannot. ``for_devices``: some of it may be for a GPU.

    >>> said = b'::c10::detail::torchCheckFail( __func__, "/p/x.cpp", static_cast<uint32_t>(7), 1);'
    >>> why_it_depends(said, "/p")
    >>> why_it_depends(said + b'int length = __builtin_strlen("/p/x.cpp");', "/p")
    'the name of its folder is used'
    """
    name = folder.encode()
    own = b"".join(_of_files_below(text, name + b"/"))
    if _ASKS.search(own) or _ASKS_ITS_CALLER.search(text):
        return "it may ask where it is called from"
    if _OPENS.search(own):
        return "it adds to torch's namespaces"
    path = re.escape(folder) + r"/[\w./+-]*"
    handed_on = _HANDED_ON if for_devices else (*_HANDED_ON, _ASSERTS)
    known = re.compile("|".join(handed_on).replace("PATH", path).encode())
    for near in _beside(_MARKER.sub(b"", text), name):
        if name in known.sub(b"", near):
            return "the name of its folder is used"
    return None


def _of_files_below(text: bytes, folder: bytes) -> Iterator[bytes]:
    """The parts of a preprocessed text that come from files below a folder."""
    is_below, start = True, 0  # in front of the first marker
    for marker in _MARKER.finditer(text):
        if is_below:
            yield text[start : marker.start()]
        is_below, start = marker[1].startswith(folder), marker.end()
    if is_below:
        yield text[start:]


def _beside(text: bytes, name: bytes) -> Iterator[bytes]:
    """The surroundings of each place where a name stands; those that touch are one."""
    first, last, place = 0, 0, text.find(name)
    while place != -1:
        if place - _BESIDE > last:
            yield text[first:last]
            first = max(place - _BESIDE, 0)
        last = place + len(name) + _BESIDE
        place = text.find(name, place + len(name))
    yield text[first:last]
