"""Small projects with headers of their own in front of a torch that is small, too, and that notices
everything: which macros were defined before it and what was read. What g++ reads of them, as stock
would, and with a precompiled header.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from warmcc.daemon.pch import leading_includes, opening
from warmcc.daemon.pch.opening import HeaderSearch, Opening
from warmcc.daemon.toolchain import ninja

# It tests, mentions, defines and removes macros whose names a header of the user's may have, too.
TORCH = {
    "torch/extension.h": """\
#pragma once
#include <stddef.h>
#include <ATen/ATen.h>
#ifdef TESTED
int tested_before = TESTED;
#endif
#ifndef DEFAULTED
#define DEFAULTED 7
#endif
#ifdef OPS_H
int ops_before;
#endif
#define TORCH_LATER 3
#undef REMOVED
inline int body() { return MENTIONED + 1; }
#ifdef _WIN32
int skipped = SKIPPED;
#endif
#ifdef __CUDA_RUNTIME_H__
int cuda_before;
#endif
""",
    "ATen/ATen.h": "#pragma once\n#define ATEN_LATER 4\n#ifdef ATEN_TESTED\nint aten_tested;\n"
    "#endif\nint aten;\n",
    "c10/other.h": "#pragma once\n#ifdef OTHER_TESTED\nint o;\n#endif\n#define C10_OTHER_H\n"
    "int other;\n",
    "fmt/light.h": "#pragma once\nint light;\n",
}
MENTIONED = "int MENTIONED = 1;\n"  # so that the small torch compiles


@dataclass
class Project:
    """A source and its headers in ``folder``, which is empty at first. ``flags`` are those of all
    compiles.
    """

    folder: Path
    flags: list[str] = field(default_factory=list)
    home: Path | None = None

    def __post_init__(self) -> None:
        for name, text in TORCH.items():
            self.write(f"site/{name}", text.replace("inline", MENTIONED + "inline"))
        self.write("system/unknown.h", "#ifdef TORCH_LATER\nint after;\n#endif\n")
        self.write("system/string.h", "#pragma once\nint of_string;\n")
        for name in ("user", "user/more", "tree"):
            (self.folder / name).mkdir(exist_ok=True)
        self._precompiled: dict[tuple[str, ...], Path] = {}

    def write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="")
        return path

    def clear(self) -> None:
        """Remove what the user wrote."""
        for path in sorted((self.folder / "user").rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        (self.folder / "user/more").mkdir()

    @property
    def words(self) -> list[str]:
        """The flags with the folders."""
        own = [f"-I{self.folder}/user/more", "-isystem", f"{self.folder}/site"]
        return [*self.flags, *own, "-isystem", f"{self.folder}/system"]

    @property
    def search(self) -> HeaderSearch:
        compilers = [os.path.realpath(path) for path in _compilers_folders()]
        site, system = f"{self.folder}/site", f"{self.folder}/system"
        return HeaderSearch(
            (str(self.home),) if self.home is not None else (),
            (f"{self.folder}/user/more", site, system, *compilers),
            frozenset((os.path.realpath(system), *compilers)),
            frozenset((os.path.realpath(site),)),
            "",
            lambda path: path.startswith((site, system, *compilers)),
            tuple(self.words),
        )

    def opening(self, source: str = "user/main.cpp") -> Opening:
        path = self.folder / source
        return opening.of(opening.head(str(path)), str(path.parent), self.search)

    def stock(self, *, compiled: bool = False) -> str | None:
        """What g++ reads (or makes of it, as assembler) as stock has it; None when it does not
        compile.
        """
        return self._run(["-S" if compiled else "-E", "user/main.cpp"])

    def forced(self, found: Opening, size: int, *, compiled: bool = False) -> str | None:
        """The same behind a precompiled header of the first ``size`` headers; None when g++ refuses
        it.
        """
        header = self._precompile(found.headers[:size])
        macros = found.macros[size - 1]
        unit = ninja.Compile("", "main.o", header, passed=macros)
        unit.write(self.folder / "tree")
        kind = ["-S"] if compiled else ["-E", "-fpch-preprocess"]
        return self._run([*kind, *unit.forced(self.folder / "tree"), "user/main.cpp"])

    def alone(self, headers: tuple[str, ...]) -> str:
        """What g++ reads of the headers themselves."""
        text = self._run(["-E", "-x", "c++", str(self._precompile(headers))])
        assert text is not None
        return text

    def _precompile(self, headers: tuple[str, ...]) -> Path:
        if headers not in self._precompiled:
            path = self.write(
                f"pch{len(self._precompiled)}/prelude.h", leading_includes.text(headers)
            )
            assert (
                self._run(["-x", "c++-header", str(path), "-o", f"{path}.gch"], output=False)
                is not None
            )
            self._precompiled[headers] = path
        return self._precompiled[headers]

    def _run(self, words: list[str], *, output: bool = True) -> str | None:
        to = ["-o", "-"] if output else []
        command = (
            ["g++", *self.words, "-iquote", str(self.home)]
            if self.home is not None
            else ["g++", *self.words]
        )
        done = subprocess.run(
            [*command, *words, *to],
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            errors="replace",
        )
        self.said = done.stderr
        return done.stdout if done.returncode == 0 else None


def by_file(text: str) -> dict[str, str]:
    """What a preprocessor wrote, by the file that it came from."""
    found: dict[str, list[str]] = defaultdict(list)
    path = ""
    for line in text.split("\n"):
        if line.startswith("# ") and (parts := line.split('"'))[1:]:
            path = parts[1]
        elif line.strip() and not line.startswith("#pragma GCC pch_preprocess"):
            found[path] += line.split()
    return {path: " ".join(words) for path, words in found.items()}


_known: list[str] = []


def _compilers_folders() -> list[str]:
    if not _known:
        said = subprocess.run(
            ["g++", "-E", "-v", "-x", "c++", "/dev/null"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stderr
        inside = said.split("#include <...> search starts here:\n")[1].split(
            "\nEnd of search list"
        )[0]
        _known.extend(line.strip() for line in inside.split("\n"))
    return _known
