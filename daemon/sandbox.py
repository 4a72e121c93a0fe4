"""The sandbox of a build (``sandbox = true``): its compilers see the toolchain, their inputs and their staging tree.

What a source includes by an absolute path, what an assembler's ``.incbin`` reads, what a flag writes: all of it fails
as if it were not permitted, unless it is an input. Made with Landlock, which needs no privilege and no namespaces.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from warmcc.daemon import confine, keys
from warmcc.daemon.toolchain.flags import folders, split
from warmcc.daemon.work import Work

_SYSTEM = (
    "/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt", "/etc/ld.so.cache", "/etc/alternatives", "/dev/urandom",
    "/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/loadavg",
)  # fmt: skip
_DEVICES = ("/dev/null", "/dev/zero")


class Sandbox:
    """``own`` are the daemon's folders that builds read: profiles, kept objects, ninja."""

    def __init__(self, own: list[str]) -> None:
        self._own = own

    @staticmethod
    def missing() -> str | None:
        """Why there is no sandbox on this machine, or None."""
        return None if confine.version() else "sandbox = true, but this kernel has no Landlock"

    def command(self, work: Work, argv: list[str]) -> list[str]:
        """The command that runs ``argv`` confined to what ``work`` needs."""
        rules = {"read": self._readable(work), "write": [str(work.tree), *_DEVICES]}
        return [sys.executable, "-I", "-S", str(Path(confine.__file__)), json.dumps(rules), *argv]

    def _readable(self, work: Work) -> list[str]:
        request, toolchain = work.request, work.toolchain
        words = split(f"{work.plan.cflags} {work.plan.post_cflags} {work.plan.cuda_cflags} {work.plan.ldflags}")
        named = [*folders(words), *(word[2:] for word in words if word.startswith("-L"))]
        inputs = [os.path.dirname(source) for source in request.sources]
        places = [
            *_SYSTEM, *self._own, *toolchain.roots, request.interpreter.torch_dir, *named, *inputs,
            *filter(None, [keys.home(request), keys.workdir(request)]),
            *(word for word in words if word.startswith("/")),
        ]  # fmt: skip
        if toolchain.cuda is not None:
            places.append(toolchain.cuda.top)
        return sorted({os.path.join(work.folder, place) for place in places if place})
