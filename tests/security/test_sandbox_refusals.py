"""What the sandbox refuses to a caller, and the programs of a daemon that run in it."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, interpreter, load_request, module_source, request
from tests.support.daemons import Daemon
from warmcc.daemon.plan.sandboxed import refused
from warmcc.daemon.system import landlock
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.errors import ConfigError
from warmcc.protocol import Built, Failed
from warmcc.request import Interpreter

Context = zmq.Context[zmq.Socket[bytes]]

pytestmark = pytest.mark.skipif(Sandbox.missing() is not None, reason=Sandbox.missing() or "")

PLAIN = {"PATH": os.environ["PATH"]}


# Stands in a program's place: runs it where nothing else can be read or written, and fails where it
# can.
STAND_IN = """#!/bin/sh
(: >{folder}/marker) 2>/dev/null
grep -q secret {folder}/secret.h 2>/dev/null && exit 1
exec {program} "$@"
"""


def stand_in(place: Path, program: str, folder: Path) -> str:
    place.parent.mkdir(exist_ok=True)
    place.write_text(STAND_IN.format(program=program, folder=folder))
    place.chmod(0o755)
    return str(place)


@pytest.mark.slow
def test_what_identifies_a_compiler_is_confined(
    fresh_daemon: Callable[..., Daemon], roots: Path, context: Context
) -> None:
    """A compiler of the caller's is asked what it is, and compiles, where it sees no more than a
    source.
    """
    daemon = fresh_daemon(sandbox=True, sandbox_roots=[str(roots)], pch=False)
    compiler = stand_in(roots / "g++", "/usr/bin/g++", roots.parent)
    answer = Connection(daemon, context).build(request(environment={**PLAIN, "CXX": compiler}))
    assert calls.load(answer, "tiny").answer() == 42
    assert not (roots.parent / "marker").exists()


@pytest.mark.slow
def test_the_zygote_is_confined(
    fresh_daemon: Callable[..., Daemon], roots: Path, context: Context
) -> None:
    """It is the caller's Python, which sees no more than a compiler."""
    daemon = fresh_daemon(sandbox=True, sandbox_roots=[str(roots)], pch=False)
    python, ours = stand_in(roots / "bin" / "python", sys.executable, roots.parent), interpreter()
    answer = Connection(daemon, context).build(
        request(interpreter=Interpreter(python, ours.abi, ours.torch_dir))
    )
    assert calls.load(answer, "tiny").answer() == 42
    assert not (roots.parent / "marker").exists()


@pytest.mark.slow
def test_a_precompiled_header_of_the_callers_own_headers_is_confined(
    fresh_daemon: Callable[..., Daemon], roots: Path, context: Context
) -> None:
    """It is made of what a source begins with: a header that reads more makes none, and the build
    says why.
    """
    daemon = fresh_daemon(sandbox=True, sandbox_roots=[str(roots)], ccache=False, lean=False)
    connection = Connection(daemon, context)
    for name, text in (("good.h", "#include <Python.h>\n#include <vector>\n"), ("bad.h", "SECRET")):
        (roots / name).write_text(
            text.replace("SECRET", f'#include <vector>\n#include "{roots.parent}/secret.h"\n')
        )
        for number in (1, 2, 3):
            wanted = request(
                cpp_sources=[f"#include <{name}>\n{module_source(number)}"],
                extra_include_paths=[str(roots)],
            )
            answer = connection.build(wanted)
            if name == "bad.h":
                assert isinstance(answer, Failed) and "Permission denied" in answer.message, answer
            else:
                assert calls.load(answer, "tiny").answer() == number
        daemon.wait_for_profiles()
    states = {
        profile["title"].split()[0]: (profile["state"], profile["reason"])
        for profile in daemon.status()["profiles"]
    }
    assert states["<good.h>"][0] == "ready"
    assert states["<bad.h>"][0] == "failed" and "Permission denied" in states["<bad.h>"][1]
    assert "the secret was read" not in states["<bad.h>"][1]


@pytest.mark.parametrize(
    "changes",
    [
        {"extra_cflags": ["-I/root/.ssh"]}, {"extra_cflags": ["-isystem", "/root/.ssh"]},
        {"extra_cflags": ["-I/usr/../root/.ssh"]}, {"extra_cflags": ["-include /root/.ssh/id"]},
        {"extra_cflags": ["--sysroot=/root"]}, {"extra_ldflags": ["-L/root/.ssh"]},
        {"extra_ldflags": ["/root/a.o"]}, {"extra_ldflags": ["-L", "/root"]},
        {"extra_cuda_cflags": ["-I/root/.ssh"]}, {"extra_include_paths": ["/root/.ssh"]},
        {"sources": ["/root/a.cpp"]}, {"environment": {"CXX": "/root/g++"}},
        {"environment": {"CUDA_HOME": "/root/cuda"}},
        {"build_directory": "/root/b", "extra_cflags": ["-I."]},
        {"build_directory": "/root/b", "cpp_sources": ['#include "a.h"\n']},
        {"interpreter": Interpreter("/root/bin/python", ".so", interpreter().torch_dir)},
        {"interpreter": Interpreter(sys.executable, ".so", "/root/torch")},
    ],
    ids=str,
)  # fmt: skip
def test_what_is_outside_is_refused(changes: dict[str, Any], roots: Path, tmp_path: Path) -> None:
    sandbox = Sandbox([str(roots)], [], tmp_path, None)
    assert refused(sandbox, request(environment=PLAIN)) is None
    said = refused(sandbox, request(**{"environment": PLAIN, **changes}))
    assert said is not None and "/root" in said and "sandbox_roots" in said


def test_what_is_below_a_root_is_not_refused(roots: Path, tmp_path: Path) -> None:
    sandbox = Sandbox([str(roots)], [], tmp_path, None)
    flags = {
        "extra_cflags": [f"-I{roots}/a", "-DX=1", "-O2"],
        "extra_ldflags": [f"-L{roots}", "-lm"],
    }
    wanted = request(
        environment=PLAIN, sources=[f"{roots}/a.cpp"], build_directory=str(roots / "b"), **flags
    )
    assert refused(sandbox, wanted) is None
    (roots / "out").symlink_to("/root")
    assert "sandbox_roots" in (
        refused(sandbox, request(environment=PLAIN, sources=[f"{roots}/out/a.cpp"])) or ""
    )


def test_a_caller_is_told_what_to_do(
    fresh_daemon: Callable[..., Daemon], tmp_path: Path, context: Context
) -> None:
    daemon = fresh_daemon(sandbox=True, pch=False)
    source = tmp_path / "a.cpp"
    source.write_text(module_source())
    answer = Connection(daemon, context).build(load_request([source]))
    assert isinstance(answer, Failed) and answer.exception == "RequestError"
    assert str(source) in answer.message and "sandbox_roots" in answer.message
    assert daemon.status()["requests"]["refused"] == {"a path outside of the sandbox": 1}
    assert isinstance(Connection(daemon, context).build(request()), Built), (
        "a source in the call needs no root"
    )


@pytest.mark.parametrize("root", ["relative", "/nowhere/at/all", "/etc/passwd"])
def test_a_root_that_is_no_folder_is_said(root: str) -> None:
    with pytest.raises(ConfigError, match="sandbox_roots"):
        Sandbox([root], [], Path("/"), None)
    daemon = Daemon(sandbox=True, sandbox_roots=[root])
    try:
        with pytest.raises(AssertionError, match="sandbox_roots"):
            daemon.start()
    finally:
        daemon.discard()


def test_where_calls_cannot_be_filtered_there_is_no_sandbox(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert "seccomp" in (Sandbox.missing() or "")
    with pytest.raises(OSError, match="seccomp"):
        landlock.rules([], [])
    assert ctypes.CDLL(None).prctl(39, 0, 0, 0, 0) == 0, "and this process is as free as before"
