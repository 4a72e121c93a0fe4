"""Whether a unit's code can depend on the name of its folder, told from its preprocessed text.

A source names its folder where ``__FILE__`` stands, in most extensions within torch's checks. These
hand the name on, as a pointer, to functions of torch's libraries, which g++ does not see: what it
makes of the rest is the same whatever the name is. Of any other place that is not known: the length
of a name that g++ sees can be computed, compared, or copied by instructions.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from warmcc.daemon.build.elsewhere.object_strings import places_of

_MARKER = re.compile(rb'# \d+ "((?:[^"\\\n]|\\.)*)"[^\n]*\n')
_MARKED = re.compile(rb'^# \d+ "((?:[^"\\\n]|\\.)*)"', re.M)
_ESCAPED = re.compile(rb'\\(["\\])')
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
_ASKS_BY_WORD = re.compile(rb"__(?:BASE_)?FILE(?:_NAME)?__")
# What gives a file's name without a word of the preprocessor's
_ASKS = re.compile(rb"source_location|SourceLocation|__builtin_(?:FILE|source_location|LINE)")
_CURRENT = b"::current("
_ASKS_ITS_CALLER = re.compile(rb"=\s*(?:\w*::)*(?:source_location|SourceLocation)$")
# Where a function of the same name could be
_OPENS = re.compile(
    rb"(?<!using )\bnamespace\s+(?:\w+\s*::\s*)*(?:c10|torch)\b"
    rb"|\b(?:struct|class|union|using)\s+(?:c10|torch)\s*[={:;](?!:)"
)
_CHUNK = 1 << 20  # bytes of a text that are looked at while nothing else can be


def may_ask(content: bytes) -> bool:
    """Whether a file of a project may ask for a file's name by itself, and not by torch's macros;
    or define a function in the place of one of torch's."""
    return any(one.search(content) is not None for one in (_ASKS_BY_WORD, _ASKS, _OPENS))


def why_it_depends(text: bytes, folder: str, *, for_devices: bool = False) -> str | None:
    """Why the code of a preprocessed unit may depend on the name of the folder in which its
    sources are; None where it cannot. ``for_devices``: some of it may be for a GPU.

    >>> said = b'::c10::detail::torchCheckFail( __func__, "/p/x.cpp", static_cast<uint32_t>(7), 1);'
    >>> why_it_depends(said, "/p")
    >>> why_it_depends(said + b'int length = __builtin_strlen("/p/x.cpp");', "/p")
    'the name of its folder is used'
    """
    name = folder.encode()
    places = list(_parts_of(text, name + b"/"))
    own = b"".join(text[first:last] for first, last in places)
    if _ASKS.search(own) or any(
        _ASKS_ITS_CALLER.search(text[max(place - 100, 0) : place])
        for place in places_of(text, _CURRENT)
    ):
        return "it may ask where it is called from"
    if _OPENS.search(own):
        return "it adds to torch's namespaces"
    path = re.escape(folder) + r"/[\w./+-]*"
    handed_on = _HANDED_ON if for_devices else (*_HANDED_ON, _ASSERTS)
    known = re.compile("|".join(handed_on).replace("PATH", path).encode())
    is_elsewhere = sum(1 for _ in places_of(text, name)) != own.count(name) + sum(
        marker[0].count(name) for marker in _markers(text, name)
    )
    return "the name of its folder is used" if is_elsewhere or name in known.sub(b"", own) else None


def files(text: bytes) -> set[str]:
    """The files that a preprocessed text comes from, and names of what is none (``<built-in>``)."""
    names, place = set[bytes](), 0
    while place < len(text):
        last = text.find(b"\n", place + _CHUNK) + 1 or len(text)
        names.update(_MARKED.findall(text, place, last))
        place = last
    return {os.fsdecode(_ESCAPED.sub(rb"\1", name)) for name in names}


def _parts_of(text: bytes, folder: bytes) -> Iterator[tuple[int, int]]:
    """The parts of a preprocessed text that come from files below a folder: first and last place.
    They are few of its many lines, so that no other line is looked at."""
    place = 0
    if not text.startswith(b"# "):
        place = _next_marker(text, 0)
        yield 0, place
    for marker in _markers(text, folder):
        if marker[1].startswith(folder) and marker.start() >= place:
            place = _next_marker(text, marker.end() - 1)
            yield marker.end(), place


def _markers(text: bytes, name: bytes) -> Iterator[re.Match[bytes]]:
    """The lines that say from which file the next ones come, of those that have a name in them."""
    last = -1
    for place in places_of(text, name):
        start = text.rfind(b"\n", 0, place) + 1
        if start > last and (marker := _MARKER.match(text, start)) is not None:
            last = start
            yield marker


def _next_marker(text: bytes, place: int) -> int:
    """Where the next such line begins, from the end of the line before it."""
    while (place := text.find(b"\n# ", place)) != -1:
        if _MARKER.match(text, place + 1):
            return place + 1
        place += 1
    return len(text)
