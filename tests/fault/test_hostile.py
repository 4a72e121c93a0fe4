"""Compilers that hang, fork, print and allocate without end; a disk that fills; a clock that
jumps.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, load_request, module_source, request
from tests.support.daemons import Daemon
from tests.support.fault.injecting import Injector
from warmcc.protocol import Built, Cache, Declined, Failed

Context = zmq.Context[zmq.Socket[bytes]]
# 4^14 numbers, each of which the compiler keeps.
ENDLESS = """
#define A(...) __VA_ARGS__, __VA_ARGS__, __VA_ARGS__, __VA_ARGS__
#define B(...) A(A(A(A(__VA_ARGS__))))
#define C(...) B(B(B(__VA_ARGS__)))
int endless[] = {C(A(A(1)))};
"""


def misbehaving(daemon: Daemon, what: str) -> dict[str, str]:
    """The environment of a request whose compiler does ``what`` (a line of shell) when it is to
    compile the unit.
    """
    script = daemon.folder / "c++"
    script.write_text(f'#!/bin/sh\ncase "$*" in *-DBAD*) {what};; esac\nexec /usr/bin/c++ "$@"\n')
    script.chmod(0o755)
    return {**request().environment, "CXX": str(script)}


def nothing_runs(daemon: Daemon) -> bool:
    """Whether the daemon has no process but its own three: itself, the zygote, the reaper."""
    deadline = time.monotonic() + 10
    while len(daemon.processes()) > 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    return len(daemon.processes()) <= 3


@pytest.mark.slow
def test_a_compiler_that_hangs(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon(pch=False, ccache=False, build_timeout=3)
    connection = Connection(daemon, context)
    source = daemon.folder / "hangs.cpp"
    os.mkfifo(daemon.folder / "pipe.h")
    source.write_text('#include "pipe.h"\n')
    answer = connection.build(load_request([source]))
    assert isinstance(answer, Failed) and "the build exceeded its time limit" in answer.message
    assert nothing_runs(daemon)
    assert isinstance(connection.build(request()), Built)


@pytest.mark.slow
def test_a_compiler_that_forks_without_end(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False, build_timeout=8)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    environment = misbehaving(daemon, "while :; do sleep 4321 & sleep 0.001; done")
    answer = connection.build(request(environment=environment, extra_cflags=["-DBAD"]), seconds=60)
    assert isinstance(answer, Failed) and "the build exceeded its time limit" in answer.message
    assert nothing_runs(daemon)
    assert not [
        one for one in psutil.process_iter(["cmdline"]) if "4321" in (one.info["cmdline"] or [])
    ]
    assert isinstance(connection.build(request(cpp_sources=[module_source(2)])), Built)


@pytest.mark.slow
def test_a_compiler_that_prints_a_gigabyte(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    environment = misbehaving(daemon, "yes an error without end | head -c 1000000000; exit 1")
    answer = connection.build(
        request(environment=environment, extra_cflags=["-DBAD"], verbose=True), seconds=200
    )
    assert isinstance(answer, Failed)
    assert len(answer.message) < 20 << 20 and "(more output was cut)" in answer.message
    assert daemon.status()["memory"] < 400 << 20
    assert isinstance(connection.build(request()), Built)


@pytest.mark.slow
def test_a_compiler_that_allocates_without_end(
    fresh_daemon: Callable[..., Daemon], context: Context
) -> None:
    daemon = fresh_daemon(pch=False, ccache=False, step_memory=512 << 20)
    connection = Connection(daemon, context)
    answer = connection.build(request(cpp_sources=[ENDLESS]))
    assert isinstance(answer, Failed)
    assert (
        "a compiler ran out of memory (step_memory in the configuration limits it)"
        in answer.message
    )
    assert isinstance(connection.build(request()), Built)


def test_a_file_without_end(fresh_daemon: Callable[..., Daemon], context: Context) -> None:
    daemon = fresh_daemon(pch=False, ccache=False, step_file_size=16 << 20)
    connection = Connection(daemon, context)
    large = "char large[64 << 20] = {1};\n"
    answer = connection.build(request(cpp_sources=[large + module_source()]))
    assert isinstance(answer, Declined) and "File size limit exceeded" in answer.reason, answer
    assert isinstance(connection.build(request()), Built)


@pytest.fixture
def small_disk() -> Iterator[Daemon]:
    """A daemon whose cache is a disk of 32 MB."""
    if os.getuid() != 0:
        pytest.skip("only root may mount a disk")
    daemon = Daemon(pch=False, ccache=False)
    daemon.cache_dir.mkdir(mode=0o700)
    mount = ["mount", "-t", "tmpfs", "-o", "size=32m,mode=0700", "tmpfs", str(daemon.cache_dir)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        daemon.discard()
        pytest.skip("nothing may be mounted here")
    try:
        yield daemon.start()
        daemon.stop()
    finally:
        daemon.kill()
        subprocess.run(["umount", "-l", str(daemon.cache_dir)], check=True)
        daemon.discard()


def test_a_disk_that_fills(small_disk: Daemon, context: Context) -> None:
    connection = Connection(small_disk, context)
    assert isinstance(connection.build(request()), Built)
    filler = small_disk.cache_dir / "filler"
    with open(filler, "wb") as file, pytest.raises(OSError, match="No space"):
        while True:
            file.write(bytes(1 << 16))
            file.flush()
    assert isinstance(connection.build(request()), Built), "a hit needs no space"
    answer = connection.build(request(cpp_sources=[module_source(2)]))
    assert isinstance(answer, Declined) and "No space left on device" in answer.reason, answer
    filler.unlink()
    assert (
        calls.load(connection.build(request(cpp_sources=[module_source(2)])), "tiny").answer() == 2
    )
    assert small_disk.ask(Cache(1, "verify")).data["damaged"] == 0


@pytest.mark.slow
def test_a_clock_that_is_set_during_a_build(context: Context) -> None:
    """Then the dates of its inputs do not say whether they changed meanwhile: its caller gets the
    result, and nobody else. Between builds the clock may be set as anybody likes."""
    daemon = Daemon(pch=False, ccache=False)
    injector = Injector(daemon.folder, daemon.cache_dir)
    daemon.environment |= injector.environment
    source, begun, go = daemon.folder / "a.cpp", daemon.folder / "begun", daemon.folder / "go"
    wait = f"touch {begun}; while [ ! -e {go} ]; do sleep 0.01; done"
    wanted = load_request([source], environment=misbehaving(daemon, wait), extra_cflags=["-DBAD"])
    try:
        connection = Connection(daemon.start(), context)
        for number, seconds in enumerate((-3600, 3600, 10 * 365 * 86400, 0), start=1):
            source.write_text(module_source(number))
            connection.ask(wanted)
            deadline = time.monotonic() + 60
            while not begun.exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            injector.shift(seconds)
            go.touch()
            answer = connection.answer()
            assert calls.load(answer, "tiny").answer() == number, f"{seconds} s off"
            outcomes = [connection.build(wanted).outcome for _ in range(2)]
            assert outcomes == (["miss", "hit"] if seconds else ["hit", "hit"]), f"{seconds} s off"
            go.unlink()
            begun.unlink()
            injector.shift(0)
            again = connection.build(wanted)
            assert isinstance(again, Built) and again.outcome == "hit", (
                "the clock is set back between builds"
            )
        assert daemon.ask(Cache(1, "prune", 1)).data["bytes"] >= 0
        assert daemon.status()["flights"] == []
        daemon.stop()
    finally:
        daemon.discard()
        injector.close()


@pytest.mark.slow
def test_a_source_from_the_future(
    fresh_daemon: Callable[..., Daemon], context: Context, tmp_path: Path
) -> None:
    """Its date says nothing about whether it changes during a build, so that its results are not
    kept.
    """
    connection = Connection(fresh_daemon(pch=False, ccache=False), context)
    source = tmp_path / "future.cpp"
    for number in (1, 2):
        source.write_text(module_source(number))
        os.utime(source, (time.time() + 1e6,) * 2)
        answer = connection.build(load_request([source]))
        assert calls.load(answer, "tiny").answer() == number
