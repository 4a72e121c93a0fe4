"""Handles that follow their files: which code is called, what happens to old versions, and what
cannot be reloaded.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import warmcc
from tests.support.daemons import Daemon
from tests.support.edits import save_by_rename, until, write
from warmcc.client.live.handle import Handle
from warmcc.client.live.loop import Event
from warmcc.errors import CompileError, DaemonError, RequestError

FUNCTIONS = ["number", "f"]


def test_a_save_puts_new_code_in_use(client: Daemon, source: Path) -> None:
    import torch

    write(source, 1)
    with warmcc.watch("follows", source, FUNCTIONS) as ext:
        f = ext.f  # taken once, newest at each call
        assert (ext.number(), f(torch.ones(1)).item(), ext.version) == (1, 1.0, 1)
        write(source, 2)
        assert ext.wait(60)
        assert (ext.number(), f(torch.ones(1)).item(), ext.version) == (2, 2.0, 2)
        save_by_rename(source, source.read_text().replace("2", "3"))
        until(lambda: ext.version == 3)
        assert (ext.number(), f(torch.ones(1)).item()) == (3, 3.0)
        assert [version.number for version in ext.history] == [1, 2, 3]
        assert "version 3" in repr(ext) and "number" in dir(ext)


@pytest.mark.slow
def test_what_does_not_build_leaves_the_last_good_version(
    client: Daemon, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    write(source, 1)
    with warmcc.watch("broken", source, FUNCTIONS) as ext:
        write(source, 2, "int g() { return nonsense; }")
        assert ext.wait(60)
        assert (ext.number(), ext.version) == (1, 1)
        assert isinstance(ext.error, CompileError)
        assert [(one.file, one.line) for one in ext.error.diagnostics] == [(str(source), 3)]
        source.touch()
        assert ext.wait(60)
        said = capfd.readouterr().err
        assert said.count("version 1 of broken stays in use") == 1 and said.count("nonsense") >= 1
        write(source, 2)
        assert ext.wait(60)
        assert (ext.number(), ext.version, ext.error) == (2, 2, None)


@pytest.mark.slow
def test_the_first_version_has_to_build(client: Daemon, source: Path) -> None:
    source.write_text("int number() { return nonsense; }")
    for make in (warmcc.watch, warmcc.reloading):
        with pytest.raises(CompileError, match="nonsense"):
            make("never", source, "number")
    with pytest.raises(FileNotFoundError):
        warmcc.reloading("never", source.with_name("missing.cpp"))
    with pytest.raises(RequestError, match="no sources"):
        warmcc.watch("never", [])
    with pytest.raises(TypeError, match="takes no argument 'extra_cflag'"):
        warmcc.watch("never", source, extra_cflag=["-O2"])


@pytest.mark.alone
def test_a_comment_costs_no_compile_and_a_touch_nothing(client: Daemon, source: Path) -> None:
    write(source, 1, "// why\n")
    events: list[str] = []
    with warmcc.watch(
        "comments", source, FUNCTIONS, on_event=lambda event: events.append(event.kind)
    ) as ext:
        compiles = client.status()["compiles"]
        events.clear()
        source.touch()
        assert ext.wait(60)
        assert not events
        for comment in ("a comment", "another, longer one"):
            write(source, 1, f"// {comment}\n")
            assert ext.wait(60)
            assert events.pop() == "built" and ext.number() == 1
        assert client.status()["compiles"] == compiles
        write(source, 2)
        assert ext.wait(60)
        write(source, 1, "// why\n")  # and back
        assert ext.wait(60)
        assert ext.number() == 1
    assert client.status()["compiles"] == compiles + 1


def test_a_listener_that_fails_does_not_end_the_loop(
    client: Daemon, source: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def listener(event: Event) -> None:
        raise ValueError(f"what {event.kind}?")

    write(source, 1)
    with warmcc.watch("listened", source, FUNCTIONS, on_event=listener) as ext:
        write(source, 2)
        assert ext.wait(60) and ext.number() == 2
    assert "ValueError: what built?" in capfd.readouterr().err


@pytest.mark.slow
def test_headers_are_watched_also_those_that_were_missing(client: Daemon, source: Path) -> None:
    source.write_text('#include "own.h"\nint number() { return OWN; }\n')
    header = source.with_name("own.h")
    header.write_text("#define OWN 1\n")
    with warmcc.watch("headers", source, "number") as ext:
        assert ext.number() == 1
        header.write_text("#define OWN 2\n")
        until(lambda: ext.version == 2)
        assert ext.number() == 2
        header.unlink()
        until(lambda: ext.error is not None)
        assert ext.number() == 2
        header.write_text("#define OWN 3\n")
        until(lambda: ext.version == 3)
        assert ext.number() == 3


@pytest.mark.slow
def test_a_call_under_way_ends_on_its_own_code(
    client: Daemon, source: Path, tmp_path: Path
) -> None:
    gate = tmp_path / "gate"
    text = f"""#include <chrono>
    #include <thread>
    #include <unistd.h>
    int number() {{
      pybind11::gil_scoped_release release;
      while (NUMBER == 1 && access("{gate}", F_OK))
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return NUMBER;
    }}"""
    source.write_text(text.replace("NUMBER", "1"))
    with warmcc.watch("in_flight", source, "number") as ext:
        results: list[int] = []
        thread = threading.Thread(target=lambda: results.append(ext.number()))
        thread.start()
        try:
            for number in (2, 3, 4):
                source.write_text(text.replace("NUMBER", str(number)))
                assert ext.wait(60)
                assert ext.number() == number
                assert not results
        finally:
            gate.touch()
            thread.join()
        assert results == [1]
        del thread
        gc.collect()
        assert ext.history[0].state == "released"


@pytest.mark.slow
def test_reloading_looks_at_each_call(client: Daemon, source: Path) -> None:
    write(source, 1)
    ext = warmcc.reloading("by_call", source, FUNCTIONS)
    threads = threading.active_count()
    for number in (2, 3):
        write(source, number)
        assert ext.number() == number
    assert threading.active_count() == threads
    source.write_text("broken")
    assert ext.number() == 3 and isinstance(ext.error, CompileError)
    write(source, 4)
    assert ext.number() == 4 and ext.error is None


@pytest.mark.slow
def test_a_listener_may_call_what_it_listens_to(client: Daemon, source: Path) -> None:
    write(source, 1)
    heard: list[int] = []
    handles: list[Handle] = []
    ext = warmcc.reloading(
        "reentered", source, FUNCTIONS,
        on_event=lambda event: heard.append(
            handles[0].number() if handles and event.kind == "built" else 0),
    )  # fmt: skip
    handles.append(ext)
    heard.clear()
    write(source, 2)
    assert ext.number() == 2
    assert heard == [0, 2]


@pytest.mark.slow
def test_sources_that_bind_themselves(client: Daemon, source: Path) -> None:
    text = """#include <torch/extension.h>
    static int number() { return NUMBER; }
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
      m.def("number", &number); m.attr("constant") = NUMBER;
    }"""
    source.write_text(text.replace("NUMBER", "1"))
    ext = warmcc.reloading("own_module", source)
    assert (ext.number(), ext.constant) == (1, 1)
    source.write_text(text.replace("NUMBER", "2"))
    assert (ext.number(), ext.constant) == (2, 2)
    with pytest.raises(AttributeError, match="nothing"):
        _ = ext.nothing


def test_sources_that_the_daemon_would_not_read_are_said_so(
    fresh_daemon: Callable[..., Daemon], source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in fresh_daemon(message_size=100_000).environment.items():
        monkeypatch.setenv(name, value)
    write(source, 1, "// much\n" * 20_000)
    for make in (warmcc.watch, warmcc.reloading):
        with pytest.raises(RequestError, match="message_size"):
            make("large", source, FUNCTIONS)


def test_without_a_daemon_there_is_one_clear_error(
    source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path / "none"))
    write(source, 1)
    for make in (warmcc.watch, warmcc.reloading):
        with pytest.raises(DaemonError, match="daemon is not running"):
            make("alone", source, FUNCTIONS)
