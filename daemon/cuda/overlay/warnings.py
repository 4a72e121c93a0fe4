"""What a front end warns of in the overlay's headers, and would not in torch's.

A header of the overlay declares what torch's defines, and EDG warns of functions that are used and
not defined; where torch's folders come by ``-I``, as in a setup.py, it says so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_BETWEEN = "\n\n"  # two of EDG's messages
_WARNING = re.compile(r"\n*(\S[^\n]*?)\(\d+\): warning #")
_REMARK = re.compile(r"\n*Remark: The warnings can be suppressed with .*")  # behind the first


def left_out(output: str, folders: Iterable[str]) -> str:
    r"""What a front end printed, without warnings of headers in these folders.

    >>> unused = 'f.cu(3): warning #177-D: variable "x" was declared but never referenced'
    >>> remark = 'Remark: The warnings can be suppressed with "-diag-suppress <warning-number>"'
    >>> said = f"/o/c10/x.h(1): warning #821-D: extern\n\n{remark}\n\n{unused}\n\n"
    >>> left_out(said, ["/o"]) == f"{unused}\n\n{remark}\n\n"
    True
    >>> left_out(said, ["/o/c"]) == said, left_out(said.replace("f.cu", "/o/f.h"), ["/o"])
    (True, '')
    """
    places = tuple(f"{folder}/" for folder in folders)
    messages = output.split(_BETWEEN)
    kept = [message for message in messages if not _is_of(message, places)]
    if len(kept) == len(messages):
        return output
    remark = next((message for message in kept if _REMARK.fullmatch(message)), None)
    if remark is not None:
        kept.remove(remark)
        first = next((at for at, message in enumerate(kept) if _WARNING.match(message)), None)
        if first is not None:
            kept.insert(first + 1, remark)
    return _BETWEEN.join(kept) if any(kept) else ""


def _is_of(message: str, folders: tuple[str, ...]) -> bool:
    match = _WARNING.match(message)
    return match is not None and match[1].startswith(folders)
