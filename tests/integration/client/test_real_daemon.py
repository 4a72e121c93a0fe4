"""A user's calls against a real daemon: what comes back, when the daemon dies, and what stock torch
gets to see.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import warmcc
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from tests.support.scripted import serving
from tests.support.users import lead_to, tiny
from warmcc.client.connection import session
from warmcc.errors import DaemonUnavailable, WarmccWarning
from warmcc.protocol import Build, Declined, Stop

pytestmark = pytest.mark.usefixtures("fresh_client")
SLOW = '#include <regex>\nstatic std::regex pattern("a+");\n'  # about a second of work


@pytest.fixture
def client(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> Daemon:
    lead_to(daemon, monkeypatch)
    return daemon


# ---------------------------------------------------------------------- results


def test_a_library_is_the_one_at_the_path_that_comes_back(client: Daemon, tmp_path: Path) -> None:
    import torch

    text = 'static int count; extern "C" int next_one() { return ++count; }\n'
    call = {"is_python_module": False, "no_implicit_headers": True}
    stored = warmcc.load_inline("counts", text, **call)
    placed = warmcc.load_inline("counts_placed", text, build_directory=str(tmp_path), **call)
    assert placed == f"{tmp_path}/counts_placed.so"
    for path in (stored, placed):
        assert path in torch.ops.loaded_libraries
        assert [ctypes.CDLL(path).next_one() for _ in range(3)] == [1, 2, 3]
    assert (
        warmcc.load_inline("counts_placed", text, build_directory=str(tmp_path), **call) == placed
    )
    assert ctypes.CDLL(placed).next_one() == 4, "the same library, not a second one"


def test_an_edited_header_is_noticed_in_one_process(client: Daemon, tmp_path: Path) -> None:
    """Also for a library in a build directory, whose path the dynamic loader knows as the old
    code.
    """
    source, out = tmp_path / "edited.cpp", tmp_path / "out"
    out.mkdir()
    source.write_text(
        '#include "own.h"\n#include <Python.h>\nextern "C" int value() { return OWN; }\n'
    )
    seen = []
    for number in (1, 2, 1):
        (tmp_path / "own.h").write_text(f"#define OWN {number}\n")
        path = warmcc.load(
            "edited", source.as_posix(), build_directory=str(out), is_python_module=False
        )
        assert path == f"{out}/edited.so"
        code = f"import ctypes; print(ctypes.CDLL({path!r}).value())"
        seen.append(
            int(
                subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout
            )
        )
    assert seen == [1, 2, 1]


def test_modules_of_before_and_after_an_edit_stay_what_they_are(
    client: Daemon, tmp_path: Path
) -> None:
    source = tmp_path / "both.cpp"
    source.write_text(
        '#include "own.h"\n' + module_source(0, "both").replace("FromLong(0)", "FromLong(OWN)")
    )
    modules = []
    for number in (1, 2, 1, 3, 2):
        (tmp_path / "own.h").write_text(f"#define OWN {number}\n")
        modules.append(warmcc.load("both", [source]))
    assert [module.answer() for module in modules] == [1, 2, 1, 3, 2]
    assert warmcc.load("both", [source]) is modules[-1], (
        "an equal call gives the same object, as with stock"
    )


@pytest.mark.slow
def test_bound_functions_of_before_and_after_an_edit(
    warm: Daemon, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pybind11 remembers modules by name, and would give the first one again."""
    lead_to(warm, monkeypatch)
    modules = []
    for number in (1, 2, 1):
        (tmp_path / "own.h").write_text(f"#define OWN {number}\n")
        source = '#include "own.h"\nint answer() { return OWN; }'
        modules.append(
            warmcc.load_inline(
                "bound", source, functions=["answer"], extra_include_paths=[str(tmp_path)]
            )
        )
    assert [module.answer() for module in modules] == [1, 2, 1]


def test_a_program_runs_where_it_was_asked_for(
    client: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "hello.cpp"
    source.write_text('#include <cstdio>\nint main() { std::puts("hello"); }\n')
    (tmp_path / "out").mkdir()
    monkeypatch.chdir(tmp_path)
    call = {"is_python_module": False, "is_standalone": True}
    for directory, expected in (("out", "out/hello"), (None, None)):
        path = warmcc.load("hello", "hello.cpp", build_directory=directory, **call)
        assert expected in (path, None)
        assert (
            subprocess.run([os.path.abspath(path)], capture_output=True, check=True).stdout
            == b"hello\n"
        )


def test_a_folder_below_torch_extensions_dir_is_made(
    client: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "a/b"))
    assert tiny("below").answer() == 42
    assert sorted(p.name for p in (tmp_path / "a/b/below").iterdir()) == [
        "below.so",
        "build.ninja",
        "main.cpp",
    ]


def test_nothing_is_written_outside_the_store(
    client: Daemon, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    tiny("nowhere_else")
    assert list(tmp_path.iterdir()) == []


def test_thousands_of_lines_of_output_arrive(
    client: Daemon, capfd: pytest.CaptureFixture[str]
) -> None:
    before = "".join(f"#warning line-{number}-of-many\n" for number in range(3000))
    assert tiny("loud", before=before, verbose=True).answer() == 42
    said = capfd.readouterr().out
    assert all(f"line-{number}-of-many" in said for number in range(3000))


LIGHT = """
import json, sys
import warmcc
before = sorted({"torch", "zmq"} & set(sys.modules))
module = warmcc.load_inline(*json.loads(sys.argv[1]), no_implicit_headers=True)
there = [name in sys.modules for name in ("torch", "rich", "asyncio")]
print(json.dumps([before, module.answer(), *there]))
"""


def test_a_new_process_imports_torch_while_the_daemon_works(client: Daemon) -> None:
    def call(*arguments: str) -> Any:
        command = [sys.executable, "-c", LIGHT, json.dumps(arguments)]
        return json.loads(
            subprocess.run(command, capture_output=True, text=True, check=True).stdout
        )

    before, answer, torch, rich, _ = call("light", module_source(7, "light"))
    assert (before, answer, torch, rich) == ([], 7, True, False)


def test_the_request_is_sent_before_torch_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []

    def script(message: Any) -> Iterator[Any]:
        if isinstance(message, Build):
            with open(f"/proc/{message_pid[0]}/maps") as maps:
                seen.append("loaded" if "libtorch" in maps.read() else "not yet")
            yield Declined(message.id, "enough seen", False)

    message_pid: list[int] = []
    with serving(script, monkeypatch):
        child = subprocess.Popen(
            [sys.executable, "-c", LIGHT, json.dumps(["early", ""])],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        message_pid.append(child.pid)
        _, said = child.communicate(timeout=60)
    assert seen == ["not yet"]
    assert child.returncode == 1 and b"DaemonUnavailable" in said and b"enough seen" in said


# ------------------------------------------------------------------- the daemon dies, or is stopped


def after(seconds: float, work: Callable[[], Any]) -> threading.Timer:
    timer = threading.Timer(seconds, work)
    timer.start()
    return timer


def build_starts(daemon: Daemon) -> None:
    deadline = time.monotonic() + 30
    while not any(flight["phase"] == "compiling" for flight in daemon.status()["flights"]):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.slow
def test_a_daemon_killed_in_a_build_is_replaced_and_asked_again(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    lead_to(daemon, monkeypatch)
    for name, value in {"AUTOSTART": "1", "PREWARM": "", "PCH": "0", "CCACHE": "0"}.items():
        monkeypatch.setenv(f"WARMCC_{name}", value)
    killer = threading.Thread(target=lambda: (build_starts(daemon), daemon.kill()))
    killer.start()
    assert tiny("survives", before=SLOW).answer() == 42
    killer.join()
    with session.Session(autostart=False) as one:
        assert one.welcome.pid != daemon.pid
        one.ask(Stop)


@pytest.mark.slow
def test_a_daemon_killed_in_a_build_and_not_replaced_is_told_at_once(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    lead_to(daemon, monkeypatch)
    times: list[float] = []
    killer = threading.Thread(
        target=lambda: (build_starts(daemon), daemon.kill(), times.append(time.monotonic()))
    )
    killer.start()
    with pytest.raises(DaemonUnavailable, match="connection to the daemon was lost"):
        tiny("lost", before=SLOW)
    killer.join()
    assert time.monotonic() - times[0] < 1.0
    monkeypatch.delenv("WARMCC_FALLBACK")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    with pytest.warns(WarmccWarning, match="daemon is not running|cannot start the warmcc daemon"):
        assert tiny("lost").answer() == 42


@pytest.mark.slow
def test_a_daemon_that_is_stopped_in_a_build_hands_over_to_stock(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    lead_to(daemon, monkeypatch)
    monkeypatch.delenv("WARMCC_FALLBACK")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    stopper = threading.Thread(
        target=lambda: (build_starts(daemon), os.kill(daemon.pid, signal.SIGTERM))
    )
    stopper.start()
    with pytest.warns(WarmccWarning, match="Stock torch builds this extension instead"):
        assert tiny("stopped", before=SLOW).answer() == 42
    stopper.join()


@pytest.mark.slow
def test_an_artifact_that_was_removed_by_hand_is_built_again(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    lead_to(daemon, monkeypatch)
    path = Path(tiny("removed", 3).__file__)
    path.unlink()
    assert tiny("removed", 3).answer() == 3


def test_ctrl_c_cancels_the_build(
    fresh_daemon: Callable[..., Daemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    lead_to(daemon, monkeypatch)
    code = (
        "import sys, warmcc\ntry:\n"
        "    warmcc.load_inline('x', sys.argv[1], no_implicit_headers=True)\n"
        "except KeyboardInterrupt:\n    print('interrupted', flush=True)\n    input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, SLOW + module_source(1, "x")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        build_starts(daemon)
        child.send_signal(2)
        assert child.stdout is not None and child.stdout.readline() == "interrupted\n"
        deadline = time.monotonic() + 3
        while (status := daemon.status())["flights"] and time.monotonic() < deadline:
            time.sleep(0.05)
        assert (status["flights"], status["requests"]["cancelled"]) == ([], 1)
        child.communicate("\n")
