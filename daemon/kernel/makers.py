"""What compiles a text, what it made of it, and what its caller is told where it did not."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from warmcc.daemon.build import diagnostics
from warmcc.daemon.toolchain import Toolchain
from warmcc.protocol import Diagnostic, Failed
from warmcc.request import KernelRequest

MADE = "made"  # the file that a compiler makes, in the folder of its text


class NotHere(Exception):
    """The client compiles a text by itself; ``expected``: that is by design."""

    def __init__(self, reason: str, expected: bool) -> None:
        super().__init__(reason)
        self.expected = expected


@dataclass(frozen=True)
class Maker:
    """What compiles a text, and ``identity``, all that tells it from others.

    ``folders`` are searched for headers, in their order, and ``roots`` are those of the toolchain.
    """

    identity: list[object]
    folders: list[str]
    roots: list[str]
    argv: list[str] = field(default_factory=list)
    toolchain: Toolchain | None = None


@dataclass
class Made:
    """A file that was made, what the compiler may have read for it (``unknown``: why that is not
    known), and what its making printed."""

    path: Path
    names: dict[str, str]
    log: str
    commands: list[str]
    read: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)  # where the linker looks for them
    unknown: str = ""
    way: str = ""


class DoesNotCompile(Exception):
    """``str()`` is what the compiler said."""


def failed(request: KernelRequest, said: str) -> Failed:
    """A compile error, in stock's form."""
    found = [one for one in diagnostics.parse(said) if one.severity in ("error", "fatal error")]
    if not found:
        found = [Diagnostic(request.file, 0, 0, "error", said.partition("\n")[0])]
    return Failed(0, "RuntimeError", f"Error building extension {request.name!r}: {said}", found)
