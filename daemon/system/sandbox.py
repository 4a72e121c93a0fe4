"""The sandbox (``sandbox = true``): builds see only their inputs, and write only outputs.
They read the toolchain, the folders of ``sandbox_roots`` and what they are given to work on, and
can write only the last.

What a source includes by an absolute path, what an assembler's ``.incbin`` reads, what a flag
writes: all of it fails as if it were not permitted. What may be read does not depend on the
request: a request that names anything else is refused, so that its caller sees why. Made with
Landlock and seccomp (``landlock.py``), which need no privilege and no namespaces.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from warmcc import digest, paths
from warmcc.config import Config
from warmcc.daemon import native
from warmcc.daemon.system import landlock
from warmcc.errors import ConfigError

log = logging.getLogger(__name__)

_SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/opt")
_FILES = (
    "/etc/ld.so.cache", "/etc/alternatives", "/dev/urandom", "/dev/zero", "/proc/meminfo",
    "/proc/cpuinfo", "/proc/stat", "/proc/loadavg",
)  # fmt: skip
_DEVICES = ("/dev/null",)


class Sandbox:
    """The folders that confined commands may use.
    Raises ConfigError. ``roots`` are the configured folders for input, ``own`` the daemon's
    that builds read (precompiled headers, ninja), ``staging`` is where builds work, ``helper``
    what ``make_helper`` made."""

    def __init__(
        self, roots: Sequence[str], own: Iterable[str | Path], staging: Path, helper: Path | None
    ) -> None:
        for root in roots:
            if not os.path.isabs(root) or not os.path.isdir(root) or "\n" in root:
                raise ConfigError(
                    f"sandbox_roots: {root!r} is not the absolute path of a folder; correct or "
                    "remove it"
                )
        self._inputs = _real([*_SYSTEM, *_ours(), *roots])
        self._readable = _real(
            [
                *self._inputs, *_FILES, *own, os.path.dirname(native.path("confine.c").parent),
                paths.GCC_PLUGIN,
            ]
        )  # fmt: skip
        self._staging = staging
        self._front = (
            [str(helper)] if helper is not None else [sys.executable, "-I", "-S", landlock.__file__]
        )

    @staticmethod
    def missing() -> str | None:
        """Why there is no sandbox on this machine, or None."""
        if not landlock.version():
            return "sandbox = true, but this kernel has no Landlock"
        return (
            None
            if landlock.has_filters()
            else "sandbox = true, but this kernel cannot filter system calls (seccomp)"
        )

    def command(
        self, argv: Sequence[str], environment: dict[str, str], reads: Iterable[str | Path],
        writes: Iterable[str | Path],
    ) -> tuple[list[str], dict[str, str]]:  # fmt: skip
        """The command that runs ``argv`` confined, and its environment.
        What has a program load other code (LD_…) is set behind the confinement: what comes
        before it is the daemon's own."""
        loads = {name: value for name, value in environment.items() if name.startswith("LD_")}
        rules = landlock.rules(
            [*self._readable, *map(str, reads)], [*map(str, writes), *_DEVICES], loads
        )
        plain = {name: value for name, value in environment.items() if name not in loads}
        return [*self._front, rules, *argv], plain

    def of_server(self, folder: Path) -> tuple[list[Path], dict[str, str]]:
        """What a fork server may write, and the variable by which its forks confine themselves.
        Each fork may write its own folder only, and does not see another's
        (``native/forkserver.c``)."""
        # The filter stays in force
        rules = landlock.rules([*self._readable, str(folder)], ["."], calls=False)
        return [folder, folder.parent, self._staging], {"WARMCC_CONFINE": rules}

    def may_read(self, path: str) -> bool:
        """Whether a caller may name a path as input."""
        return any(_is_below(os.path.realpath(path), root) for root in self._inputs)


def configured(config: Config, cache: Path, ninja: str) -> Sandbox | None:
    """What confines all that builds run, if the configuration says so. Raises ConfigError."""
    if not config.sandbox:
        return None
    read = [str(cache / name) for name in ("profiles", "cuda", "plugins", "hugepages")]
    read += [os.path.dirname(os.path.realpath(ninja)), *filter(None, [config.shared_store])]
    return Sandbox(
        config.sandbox_roots, read, cache / "store" / "staging", make_helper(cache / "confine")
    )


def make_helper(folder: Path) -> Path | None:
    """Compile, test and keep the program that confines commands; None if it does not work.
    It is made with the daemon's own compiler and kept by content; without it, Python does the
    same."""
    sources = [native.path(name) for name in ("confine.c", "confine.h")]
    place = folder / f"confine-{digest.of_value([digest.of_file(path) for path in sources])[:16]}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not place.exists():
            draft = place.with_suffix(f".{os.getpid()}")
            subprocess.run(
                ["cc", "-O2", str(sources[0]), "-o", str(draft)], check=True, capture_output=True
            )
            draft.rename(place)
        rules = landlock.rules(["/"], [])
        subprocess.run([place, rules, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        said = getattr(error, "stderr", b"") or str(error).encode()
        log.warning(
            "the sandbox is set up by Python, which is slower: %s",
            said.decode(errors="replace").strip()[-500:],
        )
        return None
    return place


def _ours() -> list[str]:
    """Where this Python and its torch are."""
    spec = importlib.util.find_spec("torch")
    torch = (
        [os.path.dirname(os.path.dirname(spec.origin))]
        if spec is not None and spec.origin is not None
        else []
    )
    return [sys.prefix, sys.base_prefix, *torch]


def _real(paths: Iterable[str | Path]) -> list[str]:
    return sorted({os.path.realpath(path) for path in paths})


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")
