"""What Triton has compiled, as a bundle has it: the groups of files of Triton's own cache."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

# By Triton's key, the group's name and the file's name
Groups = dict[str, dict[str, dict[str, bytes]]]
_GROUP = "__grp__"


def collected(folder: Path) -> bytes:
    """All groups of a cache folder, encoded; nothing where there are none. Raises OSError."""
    found: Groups = {}
    for path in sorted(folder.glob(f"*/{_GROUP}*")):
        children = json.loads(path.read_bytes())["child_paths"]
        files = {name: Path(place).read_bytes() for name, place in children.items()}
        found.setdefault(path.parent.name, {})[path.name.removeprefix(_GROUP)] = files
    return msgspec.msgpack.encode(found) if found else b""


def read(path: str) -> Groups:
    """Raises OSError, MsgspecError."""
    return msgspec.msgpack.decode(Path(path).read_bytes(), type=Groups)
