"""What can change in a project between two builds; and, step by step, the faults that there
were.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.fault.projects import ASKED, ASSEMBLER, HEADERS, LOCAL, LOCAL_LIBRARIES, Project


def _any_header(project: Project) -> str:
    folders = ("inc1", "inc2", "v1", "v2", "far", "env", "src", "quote")
    return f"{project.random.choice(folders)}/{project.random.choice(HEADERS)}"


def any_there(project: Project) -> str | None:
    found = [name for name in _all_headers() if project.place(name).is_file()]
    return project.random.choice(found) if found else None


def _all_headers() -> Iterator[str]:
    for folder in ("inc1", "inc2", "v1", "v2", "far", "env", "src", "quote"):
        for name in HEADERS:
            yield f"{folder}/{name}"


def add_header(project: Project) -> None:
    project.write(_any_header(project))


def edit_header(project: Project) -> None:
    if (name := any_there(project)) is not None:
        project.write(name)


def edit_header_with_its_old_look(project: Project) -> None:
    if (name := any_there(project)) is not None:
        project.write(name, keep_look=True)


def replace_within_a_tick(project: Project) -> None:
    if (name := any_there(project)) is not None:
        project.replace(name)


def remove_header(project: Project) -> None:
    if (name := any_there(project)) is not None:
        project.place(name).unlink()


def touch(project: Project) -> None:
    if (name := any_there(project)) is not None:
        project.place(name).touch()


def system_header(project: Project) -> None:
    """A header appears in /usr/local/include, or goes: also one that is in /usr/include."""
    path = LOCAL / project.random.choice([*HEADERS, "fstab.h"])
    if path.exists():
        path.unlink()
    else:
        _write_system_header(project, path)


def _write_system_header(project: Project, path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    project.version += 1
    macro = path.stem.upper()
    path.write_text(f'#undef {macro}\n#define {macro} "@{path.stem}=local:{project.version}@"\n')


def asked_for(project: Project) -> None:
    """The header of ``__has_include`` appears or goes, in any folder that is searched."""
    folders = [project.root / name for name in ("inc1", "inc2", "v1", "v2", "far", "env")]
    path = project.random.choice([*folders, LOCAL]) / ASKED
    if path.exists():
        path.unlink()
    else:
        path.touch()


def retarget_link(project: Project) -> None:
    link = project.root / "link"
    now = os.readlink(link)
    link.unlink()
    link.symlink_to("v2" if now == "v1" else "v1")


def swap_order(project: Project) -> None:
    project.random.shuffle(project.order)


def other_kind(project: Project) -> None:
    name = project.random.choice(project.order)
    project.kinds[name] = project.random.choice(["-I", "-isystem", "-iquote", "-idirafter"])


def quotes_or_not(project: Project) -> None:
    project.quoted = not project.quoted
    project.source()


def edit_blob(project: Project) -> None:
    project.version += 1
    (project.root / "blob").write_text(f"@blob={project.version}@")


def other_assembler(project: Project) -> None:
    project.assembler = project.random.choice(list(ASSEMBLER))
    project.source()


def assembler_on_path(project: Project) -> None:
    """Another ``as`` appears in a folder further in front on PATH, or goes."""
    path = project.root / "p1/as"
    if path.exists():
        path.unlink()
    else:
        path.write_text('#!/bin/sh\nexec /usr/bin/as --defsym FUZZ=1 "$@"\n')
        path.chmod(0o755)


def edit_library(project: Project) -> None:
    project.library(project.random.choice(["l1", "l2"]), shared=project.random.random() < 0.3)


def remove_library(project: Project) -> None:
    found = [path for name in ("l1", "l2") for path in (project.root / name).iterdir()]
    if len(found) > 1:
        project.random.choice(found).unlink()


def system_library(project: Project) -> None:
    """The library appears in /usr/local/lib, or goes."""
    path = LOCAL_LIBRARIES / f"lib{project.tag}.a"
    if path.exists():
        path.unlink()
    else:
        project.library("local")


def swap_libraries(project: Project) -> None:
    alone = [[]] if (LOCAL_LIBRARIES / f"lib{project.tag}.a").exists() else []
    project.libraries = project.random.choice([["l1", "l2"], ["l2", "l1"], *alone])


def change_cpath(project: Project) -> None:
    project.cpath = project.random.choice([[], ["env"], ["env", "v2"], ["v2", "env"]])


def flags_in_a_file(project: Project) -> None:
    """``-Wa,@file`` and ``-Wl,@file``: what is in it is another flag each time. Only the next
    request has it.
    """
    _flags_in_a_file(project, project.random.choice("al"), project.random.random() < 0.5)


def _flags_in_a_file(project: Project, whose: str, other: bool) -> None:
    path = project.root / "made/flags"
    said = {
        "a": ("--noexecstack", "--defsym FUZZ=1"),
        "l": ("--no-as-needed", f"{project.root}/l1/lib{project.tag}.a"),
    }
    path.write_text(said[whose][other])
    project.through_file = f"-W{whose},@{path}"


def nothing(project: Project) -> None:
    """The same again must be a hit, or the rest tells little."""


MUTATIONS: list[Callable[[Project], None]] = [
    nothing, add_header, add_header, add_header, edit_header, edit_header_with_its_old_look,
    replace_within_a_tick, remove_header, remove_header, touch, system_header, asked_for,
    retarget_link, swap_order, other_kind, quotes_or_not, edit_blob, other_assembler,
    assembler_on_path, edit_library, remove_library, system_library, swap_libraries, change_cpath,
    flags_in_a_file,
]  # fmt: skip


def _assembler(kind: str) -> Callable[[Project], None]:
    def change(project: Project) -> None:
        project.assembler = kind
        project.source()

    return change


def _through(whose: str, other: bool) -> Callable[[Project], None]:
    return lambda project: _flags_in_a_file(project, whose, other)


def _set(**fields: Any) -> Callable[[Project], None]:
    def change(project: Project) -> None:
        for name, value in fields.items():
            setattr(project, name, value)

    return change


# Faults that there were: what makes each, step by step, each answered; the last step got a wrong
# result.
SCENARIOS: dict[str, list[Callable[[Project], None]]] = {
    "ccache brings back what a guard rejected": [
        nothing,
        lambda project: project.write("inc1/n0.h"),
    ],
    "a header asked for appears": [
        nothing,
        lambda project: (project.root / "inc1" / ASKED).touch(),
    ],
    "a header asked for appears in a folder of the system": [
        nothing,
        lambda project: (LOCAL / ASKED).touch(),
    ],
    "a header in front of the system's": [
        nothing,
        lambda project: _write_system_header(project, LOCAL / "fstab.h"),
    ],
    "a library on an earlier path": [nothing, lambda project: project.library("l1")],
    "a shared library beside the archive": [
        nothing,
        lambda project: project.library("l2", shared=True),
    ],
    "a library in a folder of the system": [
        lambda project: project.library("local"),
        _set(libraries=[]),
        lambda project: project.library("local/first"),
    ],
    "another assembler on PATH": [_assembler("symbol"), assembler_on_path],
    "a header in CPATH of the same look": [
        _set(order=[], cpath=["v2"]),
        lambda project: project.write("v2/n0.h", keep_look=True),
    ],
    "a header in an earlier folder of CPATH": [
        nothing,
        _set(order=[], cpath=["env", "v2"]),
        lambda project: project.write("env/n0.h"),
    ],
    "capitals": [_assembler("capitals"), edit_blob],
    "pieces": [_assembler("pieces"), edit_blob],
    "ccache was blind, and the first linker failed": [
        lambda project: project.library("local"),  # gold does not look there
        lambda project: [_set(libraries=[])(project), _assembler("plain")(project)][0],
        edit_blob,
    ],
    "flags of the assembler in a file": [_through("a", False), _through("a", True)],
    "flags of the linker in a file": [
        lambda project: [_set(libraries=["l2"])(project), project.library("l1")][0],
        _through("l", False),
        _through("l", True),
    ],
}
