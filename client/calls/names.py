"""The names by which a command calls its files, kept where the daemon calls them otherwise.

A command may name its source and folders of headers relative to the folder that it runs in; the
daemon takes paths from the root on. An object holds such names (``__FILE__``, debugging). So what
is relative gets the folder and ``/./`` in front, which no other path may have, and g++ is told to
leave that out (``-ffile-prefix-map``).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from itertools import islice

from warmcc.client.calls.arguments import NotCarried

_FOLDER = re.compile(r"(-isystem|-iquote|-idirafter|-I|--include-path|--system-include)(=?)(.*)")
# With these nvcc's own programs write names as well, and know no other ones
_WRITES_NAMES = {
    "-g", "--debug", "-G", "--device-debug", "-lineinfo", "--generate-line-info", "-src-in-ptx",
    "--source-in-ptx",
}  # fmt: skip
# What renames relative names, or does so by other rules
_RENAMES = re.compile(r"-f\w+-prefix-map=(?!/)|-fcanon-prefix-map")
_HANDS_ON = re.compile(r"-X\w+|--compiler-options")  # the next word, whatever it is
_ENDS_A_NAME = re.compile("=")
_TAKEN_APART = re.compile(r"[^\w.+/@%~-]")  # by nvcc and its shell


def without_missing(flags: list[str], folder: str) -> list[str]:
    """The flags of a command that runs in ``folder`` without relative folders of headers that are
    not there. A ``setup.py`` means its own folder by them, and ninja runs in another one.

    >>> without_missing(["-O2", "-Inone", "-I", "none", "-Xcompiler", "-Inone", "-I/none"], "/")
    ['-O2', '-Xcompiler', '-Inone', '-I/none']
    """
    if "-Wmissing-include-dirs" in flags:
        return flags
    kept: list[str] = []
    rest = iter(flags)
    for word in rest:
        match = _FOLDER.fullmatch(word)
        has_more = _HANDS_ON.fullmatch(word) or (match is not None and not match[3])
        more = list(islice(rest, 1)) if has_more else []
        path = "" if match is None or match[2] else match[3] or "".join(more)
        if not path or os.path.isabs(path) or os.path.lexists(os.path.join(folder, path)):
            kept += [word, *more]
    return kept


class Names:
    """Of one command: its ``source`` and ``flags`` by absolute names, with what keeps the relative
    ones. Raises NotCarried where nothing keeps them.

    >>> names = Names("a/x.cpp", ["-O2", "-Ia", "-I", "/b"], "/p", is_cuda=False)
    >>> names.source, names.flags
    ('/p/./a/x.cpp', ['-O2', '-I/p/./a', '-I', '/b', '-ffile-prefix-map=/p/./='])
    >>> names.as_written("/p/./a/x.cpp:3: error: /b/y.h is too old")
    'a/x.cpp:3: error: /b/y.h is too old'
    >>> names.as_written(f"g++ {' '.join(names.flags)} -c {names.source}")
    'g++ -O2 -Ia -I /b -c a/x.cpp'
    """

    def __init__(self, source: str, flags: list[str], folder: str, *, is_cuda: bool) -> None:
        self._in_front = f"{folder.rstrip('/')}/./"
        self._keeps = f"-ffile-prefix-map={self._in_front}="
        self.source = self._absolute(source)
        self.flags = list(self._with_absolute_folders(flags, is_cuda))
        if self.source != source or self.flags != flags:
            if any(self._in_front in word for word in (source, *flags)):
                raise NotCarried("a relative name, and an absolute one with a dot")
            self.flags += self._keeping(is_cuda)

    def as_written(self, text: str) -> str:
        """What a compiler says, or how it is called, by the command's names."""
        for keeps in (f" -Xcompiler {self._keeps}", f" {self._keeps}", self._in_front):
            text = text.replace(keeps, "")
        return text

    def _absolute(self, path: str) -> str:
        return path if os.path.isabs(path) or not path else self._in_front + path

    def _with_absolute_folders(self, flags: list[str], is_cuda: bool) -> Iterator[str]:
        rest = iter(flags)
        for word in rest:
            match = _FOLDER.fullmatch(word)
            if match is None or (match[2] and not is_cuda):  # g++ takes -I=x from its sysroot
                yield word
            elif match[3]:
                yield f"{match[1]}{match[2]}{self._absolute(match[3])}"
            else:
                yield from (word, self._absolute(next(rest, "")))

    def _keeping(self, is_cuda: bool) -> list[str]:
        """Raises NotCarried."""
        if is_cuda and (found := _WRITES_NAMES.intersection(self.flags)):
            raise NotCarried(f"a relative name with {min(found)}")
        if any(_RENAMES.search(word) for word in self.flags):
            raise NotCarried("a relative name with a flag that renames such")
        if (_TAKEN_APART if is_cuda else _ENDS_A_NAME).search(self._in_front):
            raise NotCarried("a relative name in a folder whose name is no part of a flag")
        return ["-Xcompiler"] * is_cuda + [self._keeps]
