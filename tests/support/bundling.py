"""Bundles for tests: made, taken apart, changed and put together again, and used in a process that
has neither a compiler nor a daemon.
"""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

import warmcc
from tests.support.calls import module_source
from warmcc import digest, signing
from warmcc.client.bundles import archive, layout
from warmcc.client.calls import arguments as args
from warmcc.request import Request

Members = list[tuple[str, bytes]]
PAIR = {"fuzz_one": 1, "fuzz_two": 2}  # names, and what they answer


def members(path: Path) -> Members:
    """The members of a bundle, by tarfile, which reads more than warmcc does."""
    with tarfile.open(path) as tar:
        found = []
        for one in tar:
            data = tar.extractfile(one)
            assert data is not None
            found.append((one.name, data.read()))
        return found


def written(given: Members, path: Path) -> Path:
    """A bundle of members, in the form that its name says."""
    with open(path, "wb") as file:
        out = archive.Writer(file, archive.suffix_of(str(path)))
        for name, data in given:
            out.add(name, len(data), iter([data]))
        out.close()
    return path


def edited(
    path: Path, to: Path, change: Callable[[dict[str, Any]], Any], key: Path | None = None
) -> Path:
    """A bundle with a changed index, and a check that fits it; signed if there is a ``key``."""
    found = dict(members(path))
    index = msgspec.json.decode(found.pop(layout.INDEX))
    found = {name: data for name, data in found.items() if name.startswith("files/")}
    signer = signing.Signer(str(key)) if key else None
    index["signer"] = signer.public if signer else ""
    change(index)
    data = msgspec.json.encode(index)
    first = [(layout.INDEX, data), (layout.CHECK, digest.of_bytes(data).encode())]
    if signer is not None:
        first.append((layout.SIGNATURE, signer.sign(data)))
    return written([*first, *found.items()], to)


def needs(**changes: Any) -> Callable[[dict[str, Any]], None]:
    """A change of what all artifacts need."""

    def change(index: dict[str, Any]) -> None:
        for entry in index["entries"]:
            entry["needs"].update(changes)

    return change


def request(name: str, answer: int, **more: Any) -> Request:
    """The request of ``script``'s call."""
    given = {
        "name": name, "cpp_sources": module_source(answer, name), "no_implicit_headers": True,
        **more,
    }  # fmt: skip
    return args.to_request("load_inline", args.complete("load_inline", given))


def script(name: str, answer: int, more: str = "") -> str:
    """A program that loads a tiny extension, and prints what it answers and where it is from."""
    return (
        "import warmcc\n"
        f"module = warmcc.load_inline({name!r}, {module_source(answer, name)!r}, "
        f"no_implicit_headers=True{more})\n"
        "print(module.answer(), module.__file__)\n"
    )


class Target:
    """Another machine, as far as one has it: no compiler on PATH, an empty home, no daemon, and no
    network where the kernel lets one do without."""

    def __init__(self, folder: Path, **variables: str) -> None:
        (folder / "home").mkdir(parents=True)
        (folder / "run").mkdir(mode=0o700)
        self.home = folder / "home"
        self.bundles = self.home / ".cache/warmcc/bundles"
        self.environment = {
            "HOME": str(self.home), "PATH": str(folder / "nothing"), "WARMCC_OFFLINE": "1",
            "WARMCC_AUTOSTART": "0", "WARMCC_RUNTIME_DIR": str(folder / "run"), **variables,
        }  # fmt: skip

    def run(self, *words: str, alone: bool = False, **variables: str) -> Any:
        """A Python with these words; ``alone``: without a network."""
        before = ["/usr/bin/unshare", "-rn"] if alone else []
        return subprocess.run(
            [*before, sys.executable, *words], env={**self.environment, **variables},
            cwd=self.home, capture_output=True, text=True, timeout=120,
        )  # fmt: skip

    def warmcc(self, *words: str, **variables: str) -> Any:
        return self.run("-m", "warmcc.client.cli", *words, **variables)


def can_be_alone() -> bool:
    """Whether a process may have a network namespace to itself."""
    try:
        done = subprocess.run(["/usr/bin/unshare", "-rn", "/bin/true"], capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def tar_of(given: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """An archive with any members, as an attacker writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for member, data in given:
            member.size = len(data) if member.isreg() else 0
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def hidden(folder: Path) -> list[str]:
    """What an unpacking process has not finished."""
    return [name for name in os.listdir(folder) if name.startswith(".")]


def plain(answer: int, name: str, **more: object) -> warmcc.Artifact:
    return warmcc.build_inline(name, module_source(answer, name), no_implicit_headers=True, **more)


def packed(tmp_path: Path, answer: int, name: str, suffix: str = ".tar.gz") -> Path:
    path = tmp_path / f"{name}{suffix}"
    warmcc.pack(path, [plain(answer, name)])
    return path
