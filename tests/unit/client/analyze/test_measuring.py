"""What is measured of small units and processes, by real compilers and the kernel."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from warmcc.client.analyze import clock, headers
from warmcc.client.stock.processes import Watcher, run
from warmcc.client.stock.replay import Command


@pytest.fixture
def unit(tmp_path: Path) -> Command:
    """A unit with two headers, one of which is read by both."""
    torch = tmp_path / "torch" / "include"
    (torch / "c10").mkdir(parents=True)
    (torch / "c10" / "shared.h").write_text(
        "#pragma once\ntemplate <class T> T grown(T x) {\n"
        + "".join(f"  struct s{i} {{ T a, b; }} v{i}{{x, x}}; x += v{i}.a;\n" for i in range(300))
        + "  return x;\n}\n"
    )
    (tmp_path / "own.h").write_text("#include <c10/shared.h>\n#define FAR 1\n")
    source = tmp_path / "unit.cpp"
    source.write_text(
        '#include "own.h"\n#include <c10/shared.h>\n#include <cstddef>\n'
        "int first() { return grown(2L); }\nint f() { return grown<int>(1); }\n"
    )
    words = ("g++", f"-isystem{torch}", "-c", str(source), "-o", "unit.o")
    folder = tmp_path / "work"
    folder.mkdir()
    return Command(words, folder, str(source), "unit.o")


def test_headers_have_owners_places_and_sizes(unit: Command, tmp_path: Path) -> None:
    found = headers.read(unit, dict(os.environ), [tmp_path / "torch" / "include"], [tmp_path])
    by_name = {one.name.rsplit("/", 1)[-1]: one for one in found.headers}
    assert by_name["own.h"].owner == "user"
    assert by_name["shared.h"].owner == "torch" and by_name["shared.h"].name == "c10/shared.h"
    assert by_name["cstddef"].owner == by_name["stddef.h"].owner == "standard library"
    assert by_name["shared.h"].size > 5000 > by_name["own.h"].size
    assert by_name["shared.h"].count == 1, "the second include is skipped"
    node = next(one for one in found.tree if found.headers[one.header] is by_name["shared.h"])
    assert found.headers[found.tree[node.parent].header] is by_name["own.h"]
    assert found.tree[0].parent == -1
    assert sum(one.reading for one in found.headers) <= found.seconds
    assert not list(unit.folder.iterdir())


def test_a_unit_that_cannot_be_preprocessed_says_so(unit: Command, tmp_path: Path) -> None:
    Path(unit.source).write_text("#include <not_there.h>\n")
    with pytest.raises(RuntimeError, match=r"not_there\.h"):
        headers.read(unit, dict(os.environ), [], [tmp_path])


def test_the_clock_finds_templates_and_who_asked(unit: Command) -> None:
    text = Path(unit.source).read_text().partition("int first")[0]
    Path(unit.source).write_text(
        f"{text}template <class T> T outer(T x) {{ return grown(x) + grown<long>(3); }}\n"
        "int f() { return outer(1); }\n"
    )
    found = clock.measure(unit, dict(os.environ))
    assert found.why_not == ""
    assert any(path.endswith("c10/shared.h") for path in found.files)
    (grown,) = (one for one in found.templates if "grown" in one.name)
    assert grown.count == 2
    assert "outer(T)" in grown.asked
    assert found.phases["TOTAL"] >= found.phases["phase parsing"] >= 0


def test_a_compiler_without_plugins_still_has_phases(unit: Command, tmp_path: Path) -> None:
    wrapper = tmp_path / "g++-without"
    wrapper.write_text(
        '#!/bin/sh\ncase "$*" in *-fplugin*|*-shared*) echo no plugins >&2; exit 1;; esac\n'
        'exec g++ "$@"\n'
    )
    wrapper.chmod(0o755)
    words = (str(wrapper), *unit.words[1:])
    found = clock.measure(Command(words, unit.folder, unit.source, unit.output), dict(os.environ))
    assert "no plugins" in found.why_not
    assert "TOTAL" in found.phases and not found.files


def test_an_end_leaves_nothing_behind(tmp_path: Path) -> None:
    """Also of processes in groups of their own, as those of ninja."""
    words = ["sh", "-c", "echo begun; setsid sleep 9876.5 & setsid sh -c 'sleep 9876.5; true'"]
    with pytest.raises(subprocess.TimeoutExpired):
        run(words, tmp_path, os.environ, 1.0)
    found = [one.info["cmdline"] or [] for one in psutil.process_iter(["cmdline"])]
    assert not [line for line in found if line[-1:] == ["9876.5"]]
    assert run(["sh", "-c", "echo said; exit 3"], tmp_path, os.environ, 60.0) == (3, "said\n")


def test_processes_are_seen_with_their_parents() -> None:
    code = (
        "import subprocess, sys; x = b'x' * 50_000_000;"
        "subprocess.run([sys.executable, '-c', 'import time; time.sleep(0.5)', 'inner'])"
    )
    child = subprocess.Popen([sys.executable, "-c", code, "outer"])
    top = subprocess.Popen(["sh", "-c", "sleep 0.2; true"])
    watcher = Watcher(os.getpid())
    while child.poll() is None or top.poll() is None:
        watcher.look()
        time.sleep(watcher.seconds)
    watcher.look()
    outer = next(one for one in watcher.ended if one.words[-1:] == ["outer"])
    inner = next(one for one in watcher.ended if one.words[-1:] == ["inner"])
    assert (outer.parent, inner.parent) == (os.getpid(), outer.pid)
    assert outer.memory > 50_000_000 > inner.memory
    assert outer.start <= inner.start <= inner.end <= outer.end
    assert any(one.name == "sleep" and one.parent == top.pid for one in watcher.ended)
    assert {child.pid, top.pid}.isdisjoint(one.pid for one in watcher.alive)
