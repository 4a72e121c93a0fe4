"""Run a plan's steps with ninja: write a build.ninja, run it, read the dependencies.

The flags are stock's, verbatim as they stand in stock's build.ninja, so ninja and the shell read
them as they do there: words, and nothing else (``plan/stock.py`` sees to that). All that stands
around them is quoted here: the real compiler in place of its wrappers, ccache of our own in front,
the PCH, ``-MD`` in place of ``-MMD`` (the closure needs the toolchain's headers too) and where the
output goes.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from warmcc.daemon.toolchain.shell import CONTROL

NOT_USED = "warmcc_pch_not_used"  # one word, which no option of a compiler's breaks or rewords
REUSED = "[reused] "  # stands in front of a command that did not have to run
_COMMAND = re.compile(r"^\[(?:\d+/\d+|reused)\] ", re.M)


def executable() -> str | None:
    """ninja of this Python's own package, or of PATH."""
    try:
        import ninja as package

        bundled = os.path.join(package.BIN_DIR, "ninja")
        if os.access(bundled, os.X_OK):
            return bundled
    except ImportError:
        pass
    return shutil.which("ninja")


def escape(text: str) -> str:
    """A path as ninja wants it in a build line."""
    return text.replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


def shell_words(argv: list[str]) -> str:
    """A command's words as they stand in a ninja variable."""
    return _escaped(shlex.join(argv))


def _escaped(text: str) -> str:
    return text.replace("$", "$$")


@dataclass
class Compile:
    """One unit to compile.
    ``source`` and ``object`` are paths as seen from the tree, ``pch`` a header to force in.

    ``passed`` are macros of the unit's own that are defined in front of the headers in the PCH
    (None: nothing stands there, not even a header). g++ takes the PCH only if it mentions none of
    them, and never its headers as text. ``headers`` are forced in as text. ``wrapper`` stands in
    front of the compiler; ``cflags`` is in place of the steps' own when it is given; ``options``
    are warmcc's own, which the user's come after. ``parses``: it makes no object, and the one
    ``after`` it begins only where there was no mistake.
    """

    source: str
    object: str
    pch: Path | None = None
    wrapper: list[str] = field(default_factory=list)
    cflags: str | None = None
    options: list[str] = field(default_factory=list)
    passed: frozenset[str] | None = None
    headers: tuple[str, ...] = ()
    parses: bool = False
    after: str = ""

    def forced(self, tree: Path) -> list[str]:
        """The options that have g++ take the PCH, or headers."""
        if self.pch is None:
            return ["-include", str(self._link(tree))] if self.headers else []
        if self.passed is None:
            return ["-Winvalid-pch", "-include", str(self.pch)]
        macros = sorted(self.passed)
        undone = ["-include", str(tree / f"{self.object}.undo.h")] if macros else []
        return [
            "-Winvalid-pch", *(f"-D{name}" for name in macros), "-include", str(self._link(tree)),
            *undone,
        ]  # fmt: skip

    def _link(self, tree: Path) -> Path:
        return tree / f"{self.object}.prelude.h"

    def write(self, tree: Path) -> None:
        """Make what these options name. In place of the PCH's headers' text stands an error."""
        if self.headers:
            text = "".join(f"#include <{header}>\n" for header in self.headers)
            self._link(tree).write_text(text)
        if self.pch is None or self.passed is None:
            return
        # g++ ends at a header that is missing, and would go on after #error
        self._link(tree).write_text(f"#include <{NOT_USED}>\n")
        gch = tree / f"{self.object}.prelude.h.gch"
        gch.unlink(missing_ok=True)
        gch.symlink_to(f"{self.pch}.gch")
        (tree / f"{self.object}.undo.h").write_text(
            "".join(f"#undef {name}\n" for name in sorted(self.passed))
        )


@dataclass
class Steps:
    """What one run of ninja does in ``tree``.
    ``objects`` go into the link in this order, compiled now or kept; nothing is linked where the
    ``target`` is one of them."""

    tree: Path
    compiler: list[str]
    cflags: str
    post_cflags: str
    ldflags: str
    compiles: list[Compile]
    objects: list[str]
    target: str
    workdir: Path | None = None
    home: str | None = None
    linker: str = ""
    link_dependencies: bool = False

    def text(self, gate: Callable[[int], str] | None = None) -> str:
        """The build.ninja of these steps; ``gate`` gives what precedes the command of a number."""
        enter, prefix = "", ""
        if self.workdir is not None:
            enter = f"cd {shell_words([str(self.workdir)])} && "
            prefix = f" -ffile-prefix-map={shell_words([str(self.tree)])}/="
        quotes = f"-iquote {shell_words([self.home])} " if self.home is not None else ""
        link_deps = " -Wl,--dependency-file=$out.link.d" if self.link_dependencies else ""
        lines = [
            "ninja_required_version = 1.3",
            f"cxx = {shell_words(self.compiler)}",
            "wrapper =",
            f"cflags = {self.cflags}",
            f"post_cflags = {self.post_cflags}",
            f"ldflags = {self.ldflags}",
            "more =",
            "gate =",
            "rule compile",
            f"  command = ${{gate}}{enter}$wrapper $cxx -MD -MF $out.d $more "
            f"{quotes}$cflags{prefix} -c $source -o $out"
            " $post_cflags",
            "rule parse",
            f"  command = ${{gate}}{enter}$cxx -fsyntax-only -w $more {quotes}$cflags -c $source "
            "$post_cflags && : >$out",
            "rule link",
            f"  command = ${{gate}}{enter}$cxx {self.linker} $in $ldflags{link_deps} -o $out",
        ]
        for number, unit in enumerate(self.compiles):
            rule, after = ("parse" if unit.parses else "compile"), ""
            if unit.after:
                after = f" || {escape(self._out(unit.after))}"
            made = escape(self._out(unit.object))
            lines.append(f"build {made}: {rule} {escape(unit.source)}{after}")
            lines.append(f"  source = {shell_words([unit.source])}")  # in $in ninja leaves out /./
            if gate is not None:
                lines.append(f"  gate = {_escaped(gate(number))}")
            if unit.wrapper:
                lines.append(f"  wrapper = {shell_words(unit.wrapper)}")
            if unit.cflags is not None:
                lines.append(f"  cflags = {unit.cflags}")
            more = unit.forced(self.tree) + unit.options
            if more:
                lines.append(f"  more = {shell_words(more)}")
        if self.target not in self.objects:
            objects = " ".join(escape(self._out(name)) for name in self.objects)
            lines.append(f"build {escape(self._out(self.target))}: link {objects}")
            if gate is not None:
                lines.append(f"  gate = {_escaped(gate(len(self.compiles)))}")
        if (
            broken := next(filter(CONTROL.search, lines), None)
        ) is not None:  # it would say more than one thing
            raise ValueError(f"a control character in a line for ninja: {broken[:200]!r}")
        return "\n".join([*lines, ""])

    def _out(self, name: str) -> str:
        return str(self.tree / name) if self.workdir is not None else name

    def write(self, gate: Callable[[int], str] | None = None) -> None:
        for unit in self.compiles:
            unit.write(self.tree)
        (self.tree / "build.ninja").write_text(
            self.text(gate), encoding="utf-8", errors="surrogateescape"
        )

    def argv(self, ninja: str, jobs: int, targets: list[str]) -> list[str]:
        """The command that makes ``targets``, or everything."""
        return [ninja, "-v", "-j", str(jobs), *map(self._out, targets)]


def write_rule(place: Path, made: str, names: Iterable[str]) -> None:
    """Write a rule of a Makefile, as compilers write what they read."""
    escaped = (name.replace("$", "$$").replace(" ", "\\ ") for name in names)
    place.write_text(f"{made}: " + " \\\n ".join(escaped) + "\n", errors="surrogateescape")


def dependencies(depfile: Path, cwd: Path) -> list[str]:
    """The prerequisites in a Makefile rule as compilers write it, as absolute paths.

    Raises OSError when the file is missing.
    """
    text = depfile.read_text(encoding="utf-8", errors="surrogateescape").replace("\\\n", " ")
    rule = text.split("\n", 1)[0]  # -MP's phony rules come after the first
    _, _, prerequisites = rule.partition(": ")
    if "\\" in prerequisites or "$" in prerequisites:
        words = list(map(_plain, re.findall(r"(?:\\.|\$\$|[^\s\\])+", prerequisites)))
    else:  # thousands of names, which are read several times
        words = prerequisites.split()
    absolute = (word if word[0] == "/" else os.path.join(cwd, word) for word in words)
    return [_without_dots(path) if "/." in path else path for path in absolute]


def linked(depfile: Path, cwd: Path) -> list[str]:
    """The inputs of a linker, as absolute paths, from its dependency file.
    They are the phony rules that follow the first one, a line for each: mold and ld write names
    with spaces as they are, lld as a Makefile wants them.

    Raises OSError when the file is missing.
    """
    text = depfile.read_text(encoding="utf-8", errors="surrogateescape")
    names = [line[:-1] for line in text.partition("\n\n")[2].split("\n") if line.endswith(":")]
    plain = (name if os.path.lexists(os.path.join(cwd, name)) else _plain(name) for name in names)
    return [_without_dots(os.path.join(cwd, name)) for name in plain]


def _plain(word: str) -> str:
    """A name out of a Makefile's words."""
    return re.sub(r"\\([ #\\])", r"\1", word).replace("$$", "$")


def _without_dots(path: str) -> str:
    folder, name = os.path.split(path)
    return (
        os.path.join(os.path.realpath(folder), name) if "/.." in folder or "/./" in path else path
    )


def commands(output: str) -> list[str]:
    r"""The commands that a run of ``ninja -v`` printed as it started them, and those that were
    reused.

    >>> commands("[1/2] c++ -c a.cpp\na.cpp:1: warning\n[reused] c++ -c b.cpp")
    ['c++ -c a.cpp', 'c++ -c b.cpp']
    """
    return [line[line.index("] ") + 2 :] for line in output.split("\n") if _COMMAND.match(line)]


def maker(output: str, made: str) -> str | None:
    r"""The command among those of ``output`` that has compiled the object ``made``.

    >>> maker("[1/2] c++ -c a.cpp -o a.o \n[2/2] c++ a.o -o a.so", "a.o")
    'c++ -c a.cpp -o a.o'
    """
    ends = re.compile(rf" -o {re.escape(made)}(?!\S)")
    return next((one.strip() for one in commands(output) if ends.search(one)), None)


class Logged(NamedTuple):
    """What one command of a run made, and when, in seconds since the run began."""

    name: str
    start: float
    end: float


def logged(tree: Path, output: str) -> list[Logged]:
    """The commands of the last run in ``tree``, whose output was ``output``, from ninja's log."""
    if not commands(output):
        return []  # the log is of a run before
    try:
        rows = [
            line.split("\t")
            for line in (tree / ".ninja_log").read_text().splitlines()
            if line[:1] != "#"
        ]
        found = [
            Logged(os.path.basename(row[3]), int(row[0]) / 1000, int(row[1]) / 1000) for row in rows
        ]
    except (OSError, ValueError, IndexError):
        return []
    return found[-len(commands(output)) :]
