"""Small projects for the fuzzer of wrong hits (wrong_hits.py).

Every file that can take part writes a mark into the object (``@who=where:version@``), so that two
results are compared by their bytes, and none is loaded. A project has headers in folders of all
kinds (``-iquote``, ``-I``, ``-isystem``, ``-idirafter``, CPATH, behind links, beside the source,
and the system's own), ``__has_include``, files that the assembler reads, libraries on several
paths, and programs on PATH.
"""

from __future__ import annotations

import os
import random
import re
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

_MARK = re.compile(rb"@(\w+)=([^@\0]*)@")
HEADERS = ("n0.h", "n1.h", "sub/n2.h")
ASKED = "opt.h"
LOCAL = Path("/usr/local/include")
LOCAL_LIBRARIES = Path("/usr/local/lib")
MULTIARCH = subprocess.run(
    ["g++", "-print-multiarch"], capture_output=True, text=True
).stdout.strip()
SYSTEM_LIBRARIES = {"local": LOCAL_LIBRARIES, "local/first": LOCAL_LIBRARIES / MULTIARCH}

_SOURCE = """\
#include <fstab.h>
#ifndef FSTAB
#define FSTAB "@fstab=own@"
#endif
{includes}
#define HAS(name) __has_include(name)
#if HAS(<opt.h>)
#define OPTION "yes"
#else
#define OPTION "no"
#endif
{defaults}
{assembler}
{slow}
extern "C" const char library[];
const char* use = library;
#define MARKS FSTAB {marks}
extern "C" __attribute__((used)) const char marks[] =
    "@source={version}@" "@option=" OPTION "@" MARKS;
"""
_SLOW = """
constexpr int slow(int n = 0) {
    for (int i = 0; i < 15; ++i) for (int j = 0; j < 100000; ++j) n ^= j;
    return n;
}
static_assert(slow() >= 0);
"""
_SECTION = 'asm(".pushsection .rodata\\n{}\\n.popsection");'
ASSEMBLER = {
    "plain": _SECTION.format('.incbin \\"{blob}\\"'),
    "capitals": _SECTION.format('.INCBIN \\"{blob}\\"'),
    "pieces": _SECTION.format('.inc" "bin \\"{blob}\\"'),
    "symbol": _SECTION.format(
        '.ifdef FUZZ\\n.ascii \\"@as=other@\\"\\n.else\\n.ascii \\"@as=own@\\"\\n.endif'
    ),
}


@dataclass
class Project:
    """One project. ``arguments`` are what its request says; its files change below ``root``."""

    root: Path
    random: random.Random
    tag: str
    version: int = 0
    order: list[str] = field(default_factory=lambda: ["inc1", "inc2", "link", "far"])
    kinds: dict[str, str] = field(default_factory=dict)
    assembler: str = "symbol"
    slow: bool = False
    quoted: bool = True
    libraries: list[str] = field(default_factory=lambda: ["l1", "l2"])
    cpath: list[str] = field(default_factory=list)
    path: list[str] = field(default_factory=lambda: ["p1"])
    through_file: str | None = None

    def __post_init__(self) -> None:
        for name in (
            "src",
            "inc1/sub",
            "inc2/sub",
            "v1/sub",
            "v2/sub",
            "far/sub",
            "env/sub",
            "l1",
            "l2",
            "p1",
            "made",
        ):
            (self.root / name).mkdir(parents=True)
        (self.root / "link").symlink_to("v1")
        self.kinds = {"inc1": "-I", "inc2": "-I", "link": "-isystem", "far": "-idirafter"}
        for name in HEADERS:
            self.write(f"inc2/{name}")
            self.write(f"v2/{name}")
        self.write("far/n0.h")
        (self.root / "blob").write_text("@blob=0@")
        self.library("l2")
        self.source()

    # ------------------------------------------------------------------ files

    def place(self, name: str) -> Path:
        return self.root / name

    def write(self, name: str, keep_look: bool = False) -> None:
        """Another version of a header, named by its place: of the same size, and dated as it was if
        wanted.
        """
        path = self.place(name)
        self.version += 1
        macro = Path(name).stem.upper()
        text = f'#undef {macro}\n#define {macro} "@{Path(name).stem}={name}:{self.version:06}@"\n'
        path.parent.mkdir(parents=True, exist_ok=True)
        look = path.stat() if keep_look and path.is_file() else None
        path.write_text(text)
        if look is not None:
            os.utime(path, ns=(look.st_atime_ns, look.st_mtime_ns))

    def replace(self, name: str) -> None:
        """The same by a rename, within one tick of the clock."""
        path = self.place(name)
        self.write("made/new.h")
        self.write(name)
        text = path.read_text()
        (self.root / "made/new.h").write_text(
            text.replace(f"{self.version:06}", f"{self.version + 1:06}")
        )
        self.version += 1
        os.replace(self.root / "made/new.h", path)

    def source(self) -> None:
        self.version += 1
        wrap = '"{}"' if self.quoted else "<{}>"
        macros = [Path(name).stem.upper() for name in HEADERS]
        text = _SOURCE.format(
            includes="\n".join(
                f"#if __has_include({wrap.format(name)})\n#include {wrap.format(name)}\n#endif"
                for name in HEADERS
            ),
            defaults="\n".join(f'#ifndef {macro}\n#define {macro} ""\n#endif' for macro in macros),
            assembler=ASSEMBLER[self.assembler].format(blob=self.root / "blob"),
            slow=_SLOW if self.slow else "",
            library="extern \"C\" const char library[]; const char* use = library;",
            name="source",
            version=self.version,
            marks=" ".join(macros),
        )  # fmt: skip
        (self.root / "src/unit.cpp").write_text(text)

    def library(self, folder: str, shared: bool = False) -> None:
        """Another version of the library in a folder, as an archive or shared."""
        self.version += 1
        place = SYSTEM_LIBRARIES.get(folder, self.root / folder)
        source, made = self.root / "made/lib.cpp", self.root / "made/lib.o"
        source.write_text(f'extern "C" const char library[] = "@library={folder}:{self.version}@";')
        _run(["g++", "-fPIC", "-c", str(source), "-o", str(made)])
        place.mkdir(exist_ok=True)
        target = place / f"lib{self.tag}.{'so' if shared else 'a'}"
        target.unlink(missing_ok=True)
        _run(
            ["g++", "-shared", str(made), "-o", str(target)]
            if shared
            else ["ar", "rc", str(target), str(made)]
        )

    # ------------------------------------------------------------------ what is asked for

    @property
    def flags(self) -> list[str]:
        found = [f"-iquote{self.root}/quote"]
        for name in self.order:
            kind, folder = self.kinds[name], str(self.root / name)
            found += [f"-I{folder}"] if kind == "-I" else [kind, folder]
        return [*found, *self._through_file("a")]

    @property
    def link_flags(self) -> list[str]:
        return [
            *self._through_file("l"),
            *(f"-L{self.root / name}" for name in self.libraries),
            f"-l{self.tag}",
        ]

    def _through_file(self, whose: str) -> list[str]:
        return (
            [self.through_file]
            if self.through_file and self.through_file.startswith(f"-W{whose}")
            else []
        )

    @property
    def environment(self) -> dict[str, str]:
        path = os.pathsep.join([*(str(self.root / name) for name in self.path), "/usr/bin", "/bin"])
        found = {
            "PATH": path,
            "HOME": str(self.root),
            "CCACHE_DIR": str(self.root.parent / "ccache"),
        }
        if self.cpath:
            found["CPATH"] = os.pathsep.join(str(self.root / name) for name in self.cpath)
        return found

    def fresh(self) -> dict[str, list[str]] | None:
        """What a compile that knows no cache makes of it now; None when it does not compile."""
        made, source = self.root / "made", str(self.root / "src/unit.cpp")
        environment = {**self.environment, "LC_ALL": "C"}
        compiled = subprocess.run(
            ["g++", "-fPIC", *self.flags, "-c", source, "-o", str(made / "unit.o")],
            env=environment, capture_output=True, cwd=made,
        )  # fmt: skip
        if compiled.returncode != 0:
            return None
        linked = subprocess.run(
            ["g++", "-shared", str(made / "unit.o"), *self.link_flags, "-o", str(made / "unit.so")],
            env=environment, capture_output=True, cwd=made,
        )  # fmt: skip
        return marks(made / "unit.so") if linked.returncode == 0 else None


def marks(path: Path | str) -> dict[str, list[str]]:
    """The marks in a file, by who set them."""
    found: dict[str, set[str]] = {}
    for name, value in _MARK.findall(Path(path).read_bytes()):
        found.setdefault(name.decode(), set()).add(value.decode(errors="replace"))
    return {name: sorted(values) for name, values in sorted(found.items())}


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True)
