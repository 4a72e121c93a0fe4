"""What a person sees: warnings at their own line, commands on descriptor 1, a line on a terminal
that goes away.
"""

from __future__ import annotations

import os
import pty
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from warmcc.client import notices
from warmcc.client.calls.progress import Display, ninja_status, show_commands
from warmcc.client.stock import replay
from warmcc.errors import WarmccWarning
from warmcc.protocol import Built

TALKS = """
import sys
from tests.support import calls
from warmcc.client.calls.progress import Display
from warmcc.protocol import Progress
with Display(calls.request(module_name="[bold]x", verbose={verbose})) as display:
    for seconds in (0.3, 1.4, 2.4):
        display.progress(Progress(1, "compiling", seconds, 1, 3))
        assert ("rich" in sys.modules) == (seconds > 1 and {rich}), seconds
print("done")
"""


def talk(*, terminal: bool, verbose: bool = False, rich: bool = True, **environment: str) -> str:
    """What a process shows on its standard error, a terminal or a pipe."""
    master, slave = pty.openpty() if terminal else os.pipe()
    child = subprocess.run(
        [sys.executable, "-c", TALKS.format(verbose=verbose, rich=rich)],
        stdout=subprocess.PIPE, stderr=slave, text=True, check=False,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100", **environment},
    )  # fmt: skip
    os.close(slave)
    shown = b""
    while True:
        try:
            block = os.read(master, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not block:
            break
        shown += block
    os.close(master)
    text = shown.decode()
    assert (child.returncode, child.stdout) == (0, "done\n"), text
    return text


def test_a_terminal_shows_a_line_that_goes_away() -> None:
    shown = talk(terminal=True)
    assert "[bold]x: compiling 1/3, 2 s" in shown
    assert shown.rindex("\x1b[2K") > shown.rindex("compiling"), "the line is erased at the end"
    assert "\x1b[?25h" in shown, "the cursor is back"


def test_no_color_shows_none() -> None:
    shown = talk(terminal=True, NO_COLOR="1")
    assert "compiling" in shown
    assert "\x1b[3" not in shown


@pytest.mark.parametrize(
    "how",
    [{"terminal": False, "rich": False}, {"terminal": True, "verbose": True, "rich": False},
     {"terminal": True, "rich": False, "TERM": "dumb"}],
)  # fmt: skip
def test_elsewhere_nothing_is_shown_and_rich_not_imported(how: dict[str, bool]) -> None:
    assert talk(**how) == ""  # type: ignore[arg-type]


def test_commands_of_a_hit_are_shown_as_what_did_not_run(capfd: pytest.CaptureFixture[str]) -> None:
    print("before")
    show_commands(
        "x",
        Built(1, "/store/x.so", "hit", 0.0, commands=["c++ -DTORCH_EXTENSION_NAME=x -c main.cpp"]),
    )
    lines = capfd.readouterr().out.splitlines()
    assert lines[0] == "before"
    assert "hit" in lines[1] and "nothing was compiled" in lines[1]
    assert lines[2:] == ["[reused] c++ -DTORCH_EXTENSION_NAME=x -c main.cpp", "warmcc: /store/x.so"]
    show_commands("x", Built(1, "/store/x.so", "miss", 0.0, commands=["c++"]))
    assert capfd.readouterr().out == ""


def test_a_closed_standard_output_is_no_error() -> None:
    code = (
        "import os, sys\nfrom tests.support import calls\n"
        "from warmcc.client.calls.progress import Display\n"
        "os.close(1)\nDisplay(calls.request()).output('text')\nsys.stdout = None\n"
        "Display(calls.request()).output('text')\nos._exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 7


def test_output_goes_to_descriptor_one(capfd: pytest.CaptureFixture[str]) -> None:
    from tests.support import calls

    print("before ", end="")
    Display(calls.request()).output("größe \udc80\n")
    assert capfd.readouterr().out == "before größe ?\n"


def test_warnings_point_at_the_caller_and_come_once() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            notices.warn_once("test: only once", WarmccWarning)
        notices.warn_once("test: only once", UserWarning, "another key")
    assert [(str(w.message), w.category, w.filename) for w in caught] == [
        ("test: only once", WarmccWarning, __file__),
        ("test: only once", UserWarning, __file__),
    ]


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        (None, "[1/2] g++ a.cpp\nwarning: x\n[2/2] g++ b.cpp\n"),
        ("", "g++ a.cpp\nwarning: x\ng++ b.cpp\n"),
        ("%f of %t (%u left, %p) %% ", "1 of 2 (1 left,  50%) % g++ a.cpp\nwarning: x\n"
         "2 of 2 (0 left, 100%) % g++ b.cpp\n"),
        ("%q", "%qg++ a.cpp\nwarning: x\n%qg++ b.cpp\n"),
    ],
)  # fmt: skip
def test_commands_are_numbered_in_the_form_of_ninja_status(form: str | None, shown: str) -> None:
    code = (
        "from tests.support import calls\n"
        "from warmcc.client.calls.progress import Display\n"
        "display = Display(calls.request(verbose=True))\n"
        "display.output('[1/2] g++ a.cpp\\nwarning: x\\n')\n"
        "display.output('[2/2] g++ b.cpp\\n')\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "NINJA_STATUS"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env=environment if form is None else {**environment, "NINJA_STATUS": form},
    )  # fmt: skip
    assert done.stdout == shown


def test_ninja_itself_shows_the_same(tmp_path: Path) -> None:
    """Of what does not depend on time, one command after the other."""
    (tmp_path / "build.ninja").write_text(
        "rule r\n  command = true $out\nbuild a: r\nbuild b: r a\ndefault b\n"
    )
    form = "[%f/%t %u %p %%] "
    ninja = replay.ninja()
    done = subprocess.run(
        [ninja, "-v", "-j1", "-C", tmp_path], capture_output=True, text=True, check=True,
        env={**os.environ, "NINJA_STATUS": form, "TERM": "dumb"},
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if "true" in line]
    assert len(lines) == 2
    for number, line in enumerate(lines, 1):
        assert line.startswith(ninja_status(form, number, 2, 1.0))
