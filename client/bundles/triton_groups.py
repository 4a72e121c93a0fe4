"""What Triton has compiled, as a bundle has it: the groups of files of Triton's own cache."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated

import msgspec

Name = Annotated[str, msgspec.Meta(pattern=r"^[^/\0]*[^./\0][^/\0]*\Z")]  # of a file in its folder
Groups = dict[Name, dict[Name, dict[Name, bytes]]]  # by Triton's key, the group and the file
_GROUP = "__grp__"


def collected(folder: Path) -> bytes:
    """All complete groups of a cache folder, encoded; nothing where there are none."""
    found: Groups = {}
    for path in sorted(folder.glob(f"*/{_GROUP}*")):
        with contextlib.suppress(OSError, ValueError, KeyError):
            children = json.loads(path.read_bytes())["child_paths"]
            files = {name: Path(place).read_bytes() for name, place in children.items()}
            found.setdefault(path.parent.name, {})[path.name.removeprefix(_GROUP)] = files
    return msgspec.msgpack.encode(found) if found else b""


def read(path: str) -> Groups:
    """Raises OSError, MsgspecError."""
    return msgspec.msgpack.decode(Path(path).read_bytes(), type=Groups)
