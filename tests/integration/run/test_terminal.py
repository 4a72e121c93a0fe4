"""At a terminal: keys, job control and the window do the same as with python."""

from __future__ import annotations

import os
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.terminal import Terminal
from tests.support.zygotes import PYTHON, Zygotes

COUNTS = """import signal, sys, time
seen = []
signal.signal(getattr(signal, sys.argv[1]), lambda *a: seen.append(1))
print('re' + 'ady', flush=True)
end = time.monotonic() + 60
while not seen and time.monotonic() < end: time.sleep(0.01)
time.sleep(0.3)
print('se' + 'en', len(seen), flush=True)
"""
# In short sleeps: python sees a signal that comes just before a sleep only behind that sleep
SLEEPS = "exec('for i in range(6000): time.sleep(0.01)')"
WAITS = f"import time; print('re' + 'ady', flush=True); {SLEEPS}"


class Session:
    """A terminal with a zygote of its session, and the two commands at it."""

    def __init__(self) -> None:
        self.zygotes = Zygotes()
        self.terminal = Terminal(self.zygotes.where, self.zygotes.environment)
        self.terminal.expect(r"\$ ")
        self.warm = shlex.join(self.zygotes.command())
        self.zygotes.script(COUNTS, "counts.py")
        self.zygotes.script("x = 6\nbreakpoint()\nprint('x is', x)\n", "stops.py")
        deadline = time.monotonic() + 120
        while True:
            found = self.terminal.run(f"{self.warm} -c 'print(40 + 2)'", r"(?s)^(.*)\b42\b")
            if "python runs it" not in found[1]:
                break
            assert time.monotonic() < deadline, self.zygotes.logs()
            time.sleep(0.2)

    def close(self) -> None:
        self.zygotes.close()
        self.terminal.close()


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    made = Session()
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(params=["plain", "warm"])
def at(session: Session, request: pytest.FixtureRequest) -> Iterator[tuple[Terminal, str]]:
    """The terminal, and python or ``warmcc run``; nothing of another test is left there."""
    session.terminal.seen = ""
    yield session.terminal, PYTHON if request.param == "plain" else session.warm
    assert "python runs it" not in session.terminal.seen


At = tuple[Terminal, str]


def ended(terminal: Terminal) -> int:
    """The exit code of the last command."""
    return int(terminal.run("echo code $?", r"code (\d+)\r")[1])


def test_ctrl_c_raises(at: At) -> None:
    terminal, command = at
    terminal.send(f'{command} -c "{WAITS}"\n')
    terminal.expect("ready")
    terminal.send("\x03")
    # Python 3.13 shows the lines of a command
    terminal.expect(
        r"File \"<string>\", line \d, in <module>\r\n(?:    [^\r\n]*\r\n)*KeyboardInterrupt\r\n"
    )
    assert ended(terminal) == 130


@pytest.mark.parametrize(("key", "number"), [("\x03", "SIGINT"), ("\x1c", "SIGQUIT")])
def test_a_key_is_told_once(at: At, key: str, number: str) -> None:
    terminal, command = at
    terminal.send(f"{command} counts.py {number}\n")
    terminal.expect("ready")
    terminal.send(key)
    assert terminal.expect(r"seen (\d+)")[1] == "1"
    assert ended(terminal) == 0


def test_ctrl_backslash_kills(at: At) -> None:
    terminal, command = at
    terminal.send(f'{command} -c "{WAITS}"\n')
    terminal.expect("ready")
    terminal.send("\x1c")
    terminal.expect("Quit")
    assert ended(terminal) == 128 + signal.SIGQUIT


def test_ctrl_z_stops_and_fg_goes_on(at: At) -> None:
    terminal, command = at
    text = "import time\nfor i in range(600): print('n', i, flush=True); time.sleep(0.05)"
    terminal.send(f"{command} -c {shlex.quote(text)}\n")
    terminal.expect(r"\bn 3\r")
    terminal.send("\x1a")
    terminal.expect("Stopped")
    terminal.run("echo 'mark'", r"mark\r\n")
    time.sleep(0.3)
    terminal.run("jobs", "Stopped")
    assert "n " not in terminal.seen
    terminal.send("fg\n")
    terminal.expect(r"\bn \d+\r")
    terminal.send("\x03")
    terminal.expect("KeyboardInterrupt")
    assert ended(terminal) == 130


def test_a_handler_of_ctrl_z_is_called_and_nothing_stops(at: At) -> None:
    terminal, command = at
    terminal.send(f"{command} counts.py SIGTSTP\n")
    terminal.expect("ready")
    terminal.send("\x1a")
    assert terminal.expect(r"seen (\d+)")[1] == "1"
    assert ended(terminal) == 0


def test_the_shell_signals_a_job_once(at: At) -> None:
    """``kill %1`` goes to the process group."""
    terminal, command = at
    for number in ("USR1", "TERM", "INT"):
        terminal.send(f"{command} counts.py SIG{number} &\n")
        terminal.expect("ready")
        terminal.send(f"kill -{number} %1\n")
        assert terminal.expect(r"seen (\d+)")[1] == "1"
        terminal.run("wait; echo al''l", "all")


def test_a_signal_to_the_process_alone_arrives_once(at: At) -> None:
    terminal, command = at
    for number in ("USR1", "TERM", "HUP"):
        terminal.send(f"{command} counts.py SIG{number} &\n")
        terminal.expect("ready")
        terminal.send(f"kill -{number} $!\n")
        assert terminal.expect(r"seen (\d+)")[1] == "1"
        terminal.run("wait; echo al''l", "all")


def test_a_job_in_the_background_may_not_read(at: At) -> None:
    terminal, command = at
    terminal.send(f"{command} -c \"print('got', input())\" &\n")
    time.sleep(0.5)
    deadline = time.monotonic() + 30
    while "Stopped" not in terminal.run("jobs; echo al''l", r"(?s).*all\r\n")[0]:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    terminal.send("fg\n")
    terminal.expect("fg\r\n")
    time.sleep(0.3)
    terminal.send("word\n")
    terminal.expect("got word")
    assert ended(terminal) == 0


def test_the_terminal_is_the_controlling_one(at: At) -> None:
    terminal, command = at
    text = (
        "import os; print('same', os.tcgetpgrp(0) == os.getpgid(0), os.getsid(0) == os.getsid("
        "os.getppid()) or 'other', os.ttyname(0) == os.ttyname(1), open('/dev/tty').isatty(),"
        " os.isatty(0))"
    )
    found = terminal.run(f"{command} -c {shlex.quote(text)}", r"same (.*)\r")
    assert found[1] == "True True True True True"


def test_the_window_s_size_is_told(at: At) -> None:
    terminal, command = at
    terminal.resize(24, 80)
    text = (
        "import os, signal, time; signal.signal(signal.SIGWINCH, lambda *a: os.write(1,"
        " b'si' + b'ze %d %d\\n' % tuple(os.get_terminal_size())));"
        f" print('re' + 'ady', flush=True); {SLEEPS}"
    )
    terminal.send(f"{command} -c {shlex.quote(text)}\n")
    terminal.expect("ready")
    terminal.resize(31, 97)
    terminal.expect(r"size 97 31\r")
    terminal.send("\x03")
    terminal.expect("KeyboardInterrupt")
    assert ended(terminal) == 130


def test_the_prompt_of_python(at: At) -> None:
    terminal, command = at
    terminal.send(f"{command}\n")
    terminal.expect(r"Python 3[^\r]*\r\n")
    terminal.expect(r">>> ")
    terminal.send("x = 20 + 3\n")
    terminal.expect(r">>> ")
    terminal.send("1 / (x - 23)\n")
    terminal.expect("ZeroDivisionError")
    terminal.expect(r">>> ")
    terminal.send("\x04")
    assert ended(terminal) == 0


def test_pdb_at_the_terminal(at: At) -> None:
    terminal, command = at
    terminal.send(f"{command} stops.py\n")
    terminal.expect(r"\(Pdb\) ")
    terminal.send("p x * 7\n")
    terminal.expect(r"\b42\r")
    terminal.expect(r"\(Pdb\) ")
    terminal.send("c\n")
    terminal.expect(r"\bx is 6\r")
    assert ended(terminal) == 0


def test_a_pipeline_is_one_job(at: At) -> None:
    terminal, command = at
    terminal.send(f'{command} -c "{WAITS}" | cat\n')
    terminal.expect("ready")
    terminal.send("\x03")
    terminal.expect("KeyboardInterrupt")
    terminal.run("echo co''de ${PIPESTATUS[0]}", r"code \d+\r")


def test_a_session_s_end_ends_its_zygote() -> None:
    made = Session()
    try:
        (pid,) = made.zygotes.pids()
        zygote = os.pidfd_open(pid)
        made.terminal.send(f'{made.warm} -c "{WAITS}"\n')
        made.terminal.expect("ready")
        programs = [int(one) for one in children(pid)]
        assert len(programs) == 1
        made.terminal.close()
        signal.pidfd_send_signal(zygote, 0)
        deadline = time.monotonic() + 30
        while Path(f"/proc/{pid}").exists() or Path(f"/proc/{programs[0]}").exists():
            assert time.monotonic() < deadline, "the zygote or its program is still there"
            time.sleep(0.05)
        os.close(zygote)
    finally:
        made.close()


def children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
