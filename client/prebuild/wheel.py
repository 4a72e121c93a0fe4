"""A wheel of a package of variants, for one Python and one kind of machine. The same package gives
the same bytes."""

from __future__ import annotations

import base64
import hashlib
import os
import re
import zipfile
from pathlib import Path
from typing import Any

from warmcc.errors import PrebuildError
from warmcc.version import __version__

_ABI = re.compile(r"\.cpython-(\d+)(t?)-.*\.so")
_TIME = (1980, 1, 1, 0, 0, 0)


def write(package: Path, metadata: dict[str, Any], folder: Path) -> Path:
    """Write the wheel into a folder, and return its path. Raises PrebuildError, OSError."""
    name, version = metadata["name"], metadata["version"]
    tag = _tag(metadata["needs"])
    info = f"{name}-{version}.dist-info"
    target = folder / f"{name}-{version}-{tag}.whl"
    texts = {
        f"{info}/METADATA": _about(name, version, metadata),
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nGenerator: warmcc {__version__}\n"
        f"Root-Is-Purelib: false\nTag: {tag}\n",
    }
    files = sorted(path for path in package.rglob("*") if path.is_file())
    draft = folder / f".{target.name}.{os.urandom(8).hex()}.part"
    try:
        with zipfile.ZipFile(draft, "x", zipfile.ZIP_DEFLATED) as archive:
            lines = [
                _added(archive, f"{name}/{path.relative_to(package)}", path.read_bytes())
                for path in files
                if path.suffix != ".pyc"
            ]
            lines += [_added(archive, path, text.encode()) for path, text in texts.items()]
            record = f"{info}/RECORD"
            _added(archive, record, "\n".join([*lines, f"{record},,", ""]).encode())
        os.replace(draft, target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    return target


def _tag(needs: dict[str, Any]) -> str:
    found = _ABI.fullmatch(needs["abi"])
    if found is None:
        raise PrebuildError(f"no wheel can be made for a Python with the ABI {needs['abi']!r}")
    return f"cp{found[1]}-cp{found[1]}{found[2]}-linux_{needs['machine']}"


def _about(name: str, version: str, metadata: dict[str, Any]) -> str:
    count, needs = len(metadata["variants"]), metadata["needs"]
    return (
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        f"Summary: {count} prebuilt variants of a torch extension, for torch {needs['torch']}\n"
    )


def _added(archive: zipfile.ZipFile, path: str, data: bytes) -> str:
    """Add a file; gives its line for RECORD."""
    entry = zipfile.ZipInfo(path, _TIME)
    entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    archive.writestr(entry, data)
    check = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{path},sha256={check},{len(data)}"
