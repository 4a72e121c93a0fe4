"""``warmcc watch`` as a person and as an editor use it: in a pseudo-terminal, through a pipe, and
ended in every way.

What it prints in the terminal is kept in ``transcripts/``, without times. ``WARMCC_RECORD=FILE``
writes it anew, and with its times to FILE, for docs/user/live.md.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.daemons import Daemon
from tests.support.edits import save_by_rename, until

TRANSCRIPTS = Path(__file__).parent / "transcripts"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_TIMES = re.compile(r" *\b(?:\d\d:\d\d:\d\d|\d+\.\d\d)\b *")
# No run knows the source of another, so that each first build is one.
_NEW = uuid.uuid4().hex.translate(str.maketrans("0123456789", "ghijklmnop"))
SOURCE = f"at::Tensor scale(at::Tensor x) {{ return x * 2; }}\nextern int {_NEW};\n"
COMMAND = [sys.executable, "-m", "warmcc.client.cli", "watch", "kernel.cpp", "--functions", "scale"]


class Terminal:
    """``warmcc watch`` in a pseudo-terminal of 100 columns."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "40"}
        self.process = subprocess.Popen(
            [*COMMAND, *words], cwd=folder, env=environment, stdin=slave, stdout=slave,
            stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.text = ""

    def read(self) -> None:
        while select.select([self.master], [], [], 0.05)[0]:
            self.text += os.read(self.master, 65536).decode(errors="replace")

    def wait_for(self, *words: str, seconds: float = 60.0) -> str:
        """Read until all the words have come since the last call; gives the last screen, as it
        looks.
        """
        deadline = time.monotonic() + seconds
        while True:
            self.read()
            shown = screens(self.text)
            if shown and all(any(word in row for row in shown[-1].split("\n")) for word in words):
                self.text = ""
                return shown[-1]
            assert time.monotonic() < deadline, f"{words} do not come: {shown[-1:]}"
            assert self.process.poll() is None, self.text

    def press(self, keys: str) -> None:
        os.write(self.master, keys.encode())

    def end(self) -> int:
        deadline = time.monotonic() + 20
        while self.process.poll() is None:
            self.read()
            assert time.monotonic() < deadline, "it does not end"
        assert termios.tcgetattr(self.slave) == self.before, "the terminal is left as it was"
        return self.process.returncode

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for descriptor in (self.master, self.slave):
            os.close(descriptor)


def screens(text: str) -> list[str]:
    """The frames that were drawn one over the other."""
    frames = re.split(r"(?:\r?\x1b\[1A\x1b\[2K)+|\x1b\[\?25l", text)
    plain = (_ESCAPES.sub("", frame).strip("\n") for frame in frames)
    return [frame for frame in plain if frame.strip()]


@pytest.fixture
def folder(client: Daemon, tmp_path: Path) -> Path:
    (tmp_path / "kernel.cpp").write_text(SOURCE)
    return tmp_path


@pytest.fixture
def terminal(folder: Path) -> Iterator[Callable[..., Terminal]]:
    made: list[Terminal] = []

    def start(*words: str) -> Terminal:
        made.append(Terminal(folder, *words))
        return made[-1]

    yield start
    for one in made:
        one.close()


@pytest.mark.slow
def test_a_session_at_a_terminal(terminal: Callable[..., Terminal], folder: Path) -> None:
    """Edit, error, fix, header edit, rename-save, rebuild, Ctrl-C."""
    path, kept = folder / "kernel.cpp", []
    watch = terminal("--run", "python3 -c 'print(6 * 7)'")

    def shown(title: str, *words: str) -> None:
        kept.append(f"--- {title}\n{watch.wait_for(*words)}\n")

    shown("started", "built in", "42", "exit code 0")
    path.write_text(SOURCE.replace("2", "3"))
    shown("an edit", "built in", "step", "before", "exit code 0")
    path.write_text(SOURCE.replace("2", "nothing"))
    shown("an error", "does not build", "kernel.cpp:1:45: error: ")
    path.write_text('#include "own.h"\n' + SOURCE.replace("2", "OWN"))
    shown("a header that is missing", "does not build", "own.h: No such file")
    (folder / "own.h").write_text("#define OWN 4\n")
    shown("there it is", "built in", "exit code 0")
    (folder / "own.h").write_text("#define OWN 5\n")
    shown("the header edited", "built in", "exit code 0")
    save_by_rename(path, SOURCE.replace("2", "6"))
    shown("saved by renaming", "built in", "exit code 0")
    watch.press("r")
    shown("pressed r", "nothing to compile", "exit code 0")
    watch.press("c")
    watch.wait_for(
        "-c main.cpp", "exit code 0"
    )  # commands are long, and full of this machine's paths
    watch.press("\x03")
    assert watch.end() == 0
    transcript = _TIMES.sub(" #.## ", "\n".join(kept))
    if record := os.environ.get("WARMCC_RECORD"):
        (TRANSCRIPTS / "session.txt").write_text(transcript)
        Path(record).write_text("\n".join(kept))
    assert transcript == (TRANSCRIPTS / "session.txt").read_text()


@pytest.mark.parametrize("how", ["q", "\x03", "SIGTERM"])
def test_it_ends_cleanly_and_takes_what_runs_along(
    terminal: Callable[..., Terminal], how: str
) -> None:
    watch = terminal("--run", "sleep 1000")
    watch.wait_for("running sleep 1000")
    children = subprocess.run(
        ["pgrep", "-f", "^sleep 1000$"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert children
    watch.process.send_signal(signal.SIGTERM) if how == "SIGTERM" else watch.press(how)
    assert watch.end() == 0
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children), 10)


class Piped:
    """``warmcc watch --json``."""

    def __init__(self, folder: Path, words: list[str]) -> None:
        self.process = subprocess.Popen(
            [*words, "--json"],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def until(self, event: str) -> dict[str, Any]:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            found: dict[str, Any] = json.loads(line)
            if found["event"] == event:
                return found
        raise AssertionError(f"it ended before {event}")

    def end(self) -> None:
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdout is not None
        with self.process.stdout:
            assert self.process.wait(20) == 0


@pytest.fixture
def piped(folder: Path) -> Iterator[Callable[..., Piped]]:
    made: list[Piped] = []

    def start(*words: str) -> Piped:
        made.append(Piped(folder, [*COMMAND, *words]))
        return made[-1]

    yield start
    for one in made:
        one.end()


@pytest.mark.slow
def test_an_editor_reads_one_event_a_line(piped: Callable[..., Piped], folder: Path) -> None:
    (folder / "bench.py").write_text(
        "import torch\ndef main(ext):\n    print('result', ext.scale(torch.ones(1)).item())\n"
    )
    watch = piped("--call", "bench:main", "--compile-commands")
    built = watch.until("built")
    assert Path(built["path"]).exists() and built["outcome"] in ("miss", "hit")
    assert watch.until("running")["command"] == "bench:main"
    assert watch.until("output")["text"] == "result 2.0"
    assert watch.until("ran")["code"] == 0
    path = folder / "kernel.cpp"
    path.write_text(SOURCE.replace("2", "3"))
    assert watch.until("output")["text"] == "result 3.0"
    path.write_text(SOURCE.replace("2", "nothing"))
    failed = watch.until("failed")
    (one, *_) = failed["diagnostics"]
    assert (one["file"], one["line"], one["severity"]) == (str(path), 1, "error")
    (entry,) = json.loads((folder / "compile_commands.json").read_text())
    assert (entry["file"], entry["directory"]) == (str(path), str(folder))
    assert entry["arguments"][-4:-2] == ["-include", "torch/extension.h"]
    path.write_text(SOURCE)
    words = [*entry["arguments"][:-2], "-fsyntax-only", str(path)]
    assert subprocess.run(words, cwd=folder, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_tests_run_on_each_version(piped: Callable[..., Piped], folder: Path) -> None:
    (folder / "test_it.py").write_text(
        "import os\ndef test_it():\n    assert os.path.exists(os.environ['WARMCC_BUILT'])\n"
    )
    watch = piped("--pytest", "test_it.py")
    assert watch.until("ran")["code"] == 0
    (folder / "test_it.py").write_text("def test_it():\n    assert False\n")
    (folder / "kernel.cpp").write_text(SOURCE.replace("2", "7"))
    assert watch.until("ran")["code"] == 1


def test_a_newer_version_ends_what_runs_on_the_older(
    piped: Callable[..., Piped], folder: Path
) -> None:
    watch = piped("--run", "sh -c 'echo began; sleep 1000'")
    assert watch.until("output")["text"] == "began"
    (folder / "kernel.cpp").write_text(SOURCE.replace("2", "8"))
    assert watch.until("running")
    assert watch.until("output")["text"] == "began"


@pytest.mark.slow
def test_it_outlives_its_daemon_and_its_folder(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Both go away and come back."""
    daemon = fresh_daemon()
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "work"
    folder.mkdir()
    path = folder / "kernel.cpp"
    path.write_text('extern "C" int number() { return 1; }\n')
    watch = Piped(tmp_path, [*COMMAND[:4], str(path)])
    try:
        watch.until("built")
        os.kill(daemon.pid, signal.SIGTERM)
        assert daemon.process is not None
        daemon.process.wait(20)
        path.write_text('extern "C" int number() { return 2; }\n')
        assert "daemon is not running" in watch.until("away")["message"]
        daemon.start()
        watch.until("built")
        os.rename(folder, tmp_path / "old")
        assert "No such file or directory" in watch.until("failed")["message"]
        os.rename(tmp_path / "old", folder)
        watch.until("built")
        path.write_text('extern "C" int number() { return 3; }\n')
        assert watch.until("built")["outcome"] == "miss"
    finally:
        watch.end()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--call", "bench"], "write module:function"),
        (["--run", "'"], "No closing quotation"),
        (["--run", " "], "requires a command"),
    ],
)
def test_wrong_words_are_one_clear_error(folder: Path, words: list[str], said: str) -> None:
    done = subprocess.run(
        [*COMMAND, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert (
        done.stderr.startswith("warmcc: ")
        and said in done.stderr
        and "Traceback" not in done.stderr
    )
