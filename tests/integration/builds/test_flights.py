"""Many clients, one compile; clients that go away; twenty sources of which one changed."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
import zmq

from tests.support.calls import Connection, load_request, module_source, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built, Cancel, Failed, Refused

# About two seconds of work for a compiler.
SLOW = (
    "#include <regex>\n#include <iostream>\n"
    'static std::regex pattern("a+"), other("b", std::regex::icase);\n'
)


def test_64_clients_with_one_request_cost_one_compile(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    before = daemon.status()
    connections = [Connection(daemon, context) for _ in range(64)]
    wanted = request(cpp_sources=[SLOW + module_source(64)])
    for connection in connections:
        connection.ask(wanted)
    answers = [connection.answer() for connection in connections]
    assert all(isinstance(answer, Built) for answer in answers)
    assert len({answer.path for answer in answers}) == 1
    status = daemon.status()
    assert [status[name] - before[name] for name in ("compiles", "links")] == [1, 1]
    total, joined, hits = (
        status["requests"][name] - before["requests"][name] for name in ("total", "joined", "hits")
    )
    assert (total, joined + hits) == (64, 63)
    for connection in connections:
        connection.close()


def test_a_build_that_nobody_waits_for_is_cancelled(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    before = daemon.status()["requests"]["cancelled"]
    endless = request(cpp_sources=[SLOW + module_source(1)])
    staying, leaving = Connection(daemon, context), Connection(daemon, context)
    number = leaving.ask(endless)
    wait_for(lambda: daemon.status()["flights"])
    leaving.send(Cancel(number))
    wait_for(lambda: not daemon.status()["flights"])
    leaving.ask(endless)
    wait_for(lambda: daemon.status()["flights"])
    leaving.close()  # gone without a word
    wait_for(lambda: not daemon.status()["flights"])
    assert daemon.status()["requests"]["cancelled"] == before + 2
    wait_for(lambda: not compilers(daemon))
    assert isinstance(staying.build(endless), Built)
    staying.close()


def compilers(daemon: Daemon) -> list[int]:
    found = []
    for process in daemon.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if "cc1plus" in process.name():
                found.append(process.pid)
    return found


def wait_for(condition: Callable[[], object], seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def test_twenty_sources_of_which_one_changed_cost_one_compile(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]], tmp_path: Path
) -> None:
    before = daemon.status()
    connection = Connection(daemon, context)
    sources = [tmp_path / f"part{i}.cpp" for i in range(19)]
    for number, source in enumerate(sources):
        source.write_text(f"int part{number}() {{ return {number}; }}\n")
    main = tmp_path / "main_module.cpp"
    main.write_text(module_source(5))
    assert isinstance(connection.build(load_request([main, *sources])), Built)
    assert daemon.status()["compiles"] == before["compiles"] + 20
    sources[7].write_text("int part7() { return 70; }\n")
    assert isinstance(connection.build(load_request([main, *sources])), Built)
    status = daemon.status()
    assert [status[name] - before[name] for name in ("compiles", "units_reused")] == [21, 19]
    sources[7].write_text("int part7( { return 70; }\n")
    assert isinstance(connection.build(load_request([main, *sources])), Failed)
    assert isinstance(
        connection.build(load_request([main, *sources])), Failed
    )  # not an import error
    connection.close()


def test_a_compile_error_is_told_in_the_users_lines(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    connection = Connection(daemon, context)
    sources = ["int fine;\n", "int one;\nint two = nonsense;\n"]
    answer = connection.build(request(cpp_sources=sources, no_implicit_headers=True))
    assert isinstance(answer, Failed)
    assert answer.exception == "RuntimeError"
    assert answer.message.startswith("Error building extension 'tiny': ")
    first = answer.diagnostics[0]
    assert (first.file, first.line, first.column, first.severity) == (
        "cpp_sources[1]",
        2,
        11,
        "error",
    )
    assert "nonsense" in first.message
    assert "cpp_sources[1]:2:11: error: " in answer.message
    assert "\n    2 | int two = nonsense;" in answer.message
    connection.close()


@pytest.mark.slow
def test_a_missing_function_is_an_error_in_the_binding(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    connection = Connection(daemon, context)
    text = "#include <pybind11/pybind11.h>\n"
    answer = connection.build(
        request(cpp_sources=[text], functions=["nowhere"], with_pytorch_error_handling=False)
    )
    assert isinstance(answer, Failed)
    assert any(d.file == "functions" and "nowhere" in d.message for d in answer.diagnostics), (
        answer.diagnostics
    )
    connection.close()


def test_the_first_message_must_be_a_greeting_and_nonsense_is_refused(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    from warmcc import protocol

    with context.socket(zmq.DEALER) as socket:
        socket.linger = 0
        socket.connect(f"ipc://{daemon.socket}")
        for frames in (
            [protocol.MAGIC, protocol.encode(protocol.Status(1))],
            [b"x"],
            [protocol.MAGIC, b"\xc1"],
            [b"", b"", b""],
        ):
            socket.send_multipart(frames)
            assert socket.poll(5000)
            assert isinstance(protocol.decode_daemon_message(socket.recv_multipart()[1]), Refused)


@pytest.mark.slow
def test_progress_is_reported_while_a_build_runs(
    daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    connection = Connection(daemon, context)
    answer = connection.build(
        request(cpp_sources=[SLOW + module_source(77)], extra_cflags=["-O3"], verbose=True)
    )
    assert isinstance(answer, Built)
    assert any(p.phase in ("compiling", "linking") for p in connection.progress)
    assert "-DTORCH_EXTENSION_NAME=tiny" in connection.output
    connection.close()
