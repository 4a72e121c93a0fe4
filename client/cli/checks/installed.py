"""What is installed: Python, torch, a compiler, ninja, a fast linker, ccache."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator

from warmcc.client.cli.checks.finding import Finding, first_line, output


def python() -> Iterator[Finding]:
    yield Finding("Python", "ok", f"{sys.version.split()[0]}, {sys.executable}")


def torch() -> Iterator[Finding]:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        yield Finding(
            "torch",
            "bad",
            "not installed for this Python",
            f"{sys.executable} -m pip install torch",
        )
        return
    version = importlib.metadata.version("torch")
    old = tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < (2, 4)
    yield Finding(
        "torch", "note" if old else "ok", version, "tested with 2.4 and later" if old else ""
    )


def compiler() -> Iterator[Finding]:
    name = os.environ.get("CXX", "c++")
    found = shutil.which(name.split()[0]) if name.split() else None
    if found is None:
        yield Finding(
            "compiler", "bad", f"{name} is not in PATH", "apt-get install g++ (or set CXX)"
        )
        return
    version = first_line(found, "--version") or "unknown version"
    gcc = "Free Software Foundation" in output(found, "--version")
    advice = "" if gcc else "with g++, precompiled headers make builds ten times faster"
    yield Finding("compiler", "ok" if gcc else "note", f"{found}: {version}", advice)


def ninja_program() -> Iterator[Finding]:
    bundled = None
    if (spec := importlib.util.find_spec("ninja")) is not None and spec.origin is not None:
        import ninja

        bundled = os.path.join(ninja.BIN_DIR, "ninja")
    in_path = shutil.which("ninja")
    if bundled is None and in_path is None:
        yield Finding("ninja", "bad", "not installed", f"{sys.executable} -m pip install ninja")
    elif in_path is None:
        folder = os.path.dirname(str(bundled))
        advice = f"stock torch searches only PATH for ninja: export PATH={folder}:$PATH"
        yield Finding("ninja", "note", f"{bundled}, which is not in PATH", advice)
    else:
        yield Finding("ninja", "ok", f"{in_path}: {first_line(in_path, '--version')}")


def tools() -> Iterator[Finding]:
    for title, names, what in (
        ("linker", ("mold", "ld.lld", "lld"), "links in a third of the time: apt-get install mold"),
        (
            "ccache",
            ("ccache",),
            "speeds up builds before the daemon is warm: apt-get install ccache",
        ),
    ):
        found = next((path for name in names if (path := shutil.which(name))), None)
        text = f"{found}: {first_line(found, '--version')}" if found else f"no {names[0]}"
        yield Finding(title, "ok" if found else "note", text, "" if found else what)
