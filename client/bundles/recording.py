"""``warmcc pack --record``: what the processes of a command load or build is kept in a folder.

The artifacts are copied at once, as the store may need their room, and the sources may be gone when
the command ends.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from warmcc import digest
from warmcc.client.bundles import drafts, triton_groups
from warmcc.client.bundles.drafts import Draft
from warmcc.client.bundles.layout import ARTIFACTS, TRITON
from warmcc.client.bundles.torch_look import torch_look
from warmcc.errors import BundleError
from warmcc.protocol import Built
from warmcc.request import Interpreter, Request

VARIABLE = "WARMCC_RECORD"  # the folder
CACHES = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}  # in the folder
_MADE, _LEFT = ".made", ".left"


def keep(request: Request, built: Built) -> None:
    """Record what a call got. Raises BundleError where that is not possible."""
    try:
        _keep(drafts.draft(request, built))
    except OSError as error:
        where = error.filename or os.environ[VARIABLE]
        raise BundleError(
            f"{request.name!r} cannot be recorded: {where}: {error.strerror}"
        ) from None


def keep_data(path: str, python: Interpreter, process: int) -> None:
    """Record torch's cache artifacts, which a process has at its end. Raises BundleError."""
    try:
        _keep(_data(ARTIFACTS, path, python, str(process)))
    except OSError as error:
        raise BundleError(f"torch's artifacts cannot be recorded: {error.strerror}") from None


def _data(name: str, path: str, python: Interpreter, directory: str) -> Draft:
    """A file that no loader loads. Raises OSError."""
    request = Request(
        call="compile", name=name, module_name=name, interpreter=python, environment={},
        build_directory=directory,
    )  # fmt: skip
    content = digest.of_file(path)
    parts = {name: digest.of_value(content)}
    return Draft(request, path, name, [], content, parts, {}, [], torch_look(python.torch_dir))


def _keep(made: Draft) -> None:
    """Raises OSError."""
    folder = Path(os.environ[VARIABLE])
    copy = folder / made.file
    if not copy.exists():
        with _replacing(copy) as new:
            shutil.copyfile(made.path, new)
    made = msgspec.structs.replace(made, path=str(copy))
    with _replacing(folder / f"{os.urandom(8).hex()}{_MADE}") as new:
        new.write_bytes(msgspec.json.encode(made))


@contextlib.contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    """A new file that takes its place when it is complete. Raises OSError."""
    new = path.with_name(f".{os.urandom(8).hex()}")
    yield new
    new.rename(path)


def left(name: object) -> None:
    """Record that stock torch got a call. Raises BundleError."""
    path = Path(os.environ[VARIABLE], f"{os.urandom(8).hex()}{_LEFT}")
    try:
        path.write_text(str(name), encoding="utf-8", errors="replace")
    except OSError as error:
        raise BundleError(f"{name!r} cannot be recorded: {error.strerror}") from None


def recorded(folder: Path) -> list[Draft]:
    """What was recorded in a folder, and what Triton has compiled. Raises BundleError where stock
    torch got a call, or no call was made; OSError."""
    told = sorted(path.read_text(encoding="utf-8") for path in folder.glob(f"*{_LEFT}"))
    if told:
        raise BundleError(
            f"stock torch built {', '.join(dict.fromkeys(told))}, so that no bundle can have it; "
            "its warning says why"
        )
    found = [
        msgspec.json.decode(path.read_bytes(), type=Draft) for path in folder.glob(f"*{_MADE}")
    ]
    if not found:
        raise BundleError(
            "the command loaded and built no extension, and compiled no model, so there is nothing "
            "to pack"
        )
    if groups := triton_groups.collected(folder / CACHES["TRITON_CACHE_DIR"]):
        path = folder / TRITON
        path.write_bytes(groups)
        found.append(_data(TRITON, str(path), found[0].request.interpreter, ""))
    return found
