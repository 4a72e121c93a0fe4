"""An artifact as it will be in a bundle, but for what its Python and its file need.

A draft is made as soon as the daemon has answered: while the files of the call are what they were,
and the store has the artifact.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import msgspec

from warmcc import digest
from warmcc.client.bundles import files, key
from warmcc.client.bundles.layout import FROM_BUNDLE, File
from warmcc.client.bundles.torch_look import torch_look
from warmcc.client.connection.described import described
from warmcc.errors import BundleError
from warmcc.protocol import Built
from warmcc.request import Request


class Draft(msgspec.Struct, frozen=True):
    """``torch`` tells whether the torch of the request is still the one that was built for."""

    request: Request
    path: str
    file_name: str
    commands: list[str]
    file: str
    parts: dict[str, str]
    shown: dict[str, str]
    files: list[File]
    torch: list[int]


def draft(request: Request, built: Built, torch: list[int] | None = None) -> Draft:
    """The draft of a call's answer. ``torch`` is what ``torch_look`` gave when it was answered.
    Raises BundleError for one that cannot be packed, OSError."""
    if built.way.startswith(FROM_BUNDLE):
        raise BundleError(f"{request.name!r} is from a bundle; copy that one")
    if not built.kept:
        raise BundleError(
            f"{request.name!r} cannot be packed: a file of it changed while it was built, or the "
            "daemon is of an older version; build it again"
        )
    missing = [path for path in request.sources if path not in built.files]
    if missing:
        raise BundleError(f"{request.name!r} cannot be packed: {missing[0]} is in the toolchain")
    values = key.values(request, built.files)
    return Draft(
        request, built.path, os.path.basename(built.path), built.commands,
        digest.of_file(built.path), key.parts(values), key.shown(values),
        files.described(request, built.files),
        torch_look(request.interpreter.torch_dir) if torch is None else torch,
    )  # fmt: skip


def of_artifact(artifact: Any) -> Draft:
    """The draft of what ``warmcc.build_inline`` and ``warmcc.build`` return."""
    return draft(artifact._request, artifact._answer, artifact._torch)


def stored(wanted: str) -> Iterator[Draft]:
    """Drafts of the artifacts in the daemon's store that have a name, or a key that begins so.
    Raises BundleError where there is none, DaemonError, OSError."""
    found, why_none = described(wanted)
    if not found:
        raise BundleError(
            f"no artifact {wanted!r} can be packed: {why_none}, or pack the script that builds it: "
            "warmcc pack OUT --record -- python script.py"
        )
    for one in found:
        yield draft(one.request, one.built)
