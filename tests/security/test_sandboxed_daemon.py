"""A daemon with the sandbox: what sources may read and flags may write."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, load_request, module_source, request
from tests.support.daemons import Daemon
from warmcc.daemon.system import landlock
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.protocol import Declined, Failed

Context = zmq.Context[zmq.Socket[bytes]]


def plain(**changes: Any) -> Any:
    environment = {"PATH": "/usr/bin:/bin", **changes.pop("environment", {})}
    return request(environment=environment, **changes)


@pytest.fixture
def sandboxed(fresh_daemon: Callable[..., Daemon], tmp_path: Path) -> Daemon:
    if landlock.version() == 0:
        pytest.skip("this kernel has no Landlock")
    (tmp_path / "inputs").mkdir()
    return fresh_daemon(sandbox=True, sandbox_roots=[str(tmp_path / "inputs")])


@pytest.fixture
def secret(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "secret.h"
    path.write_text('#error "the secret was read"\n')
    yield path


@pytest.mark.parametrize(
    "code",
    [
        '#include "{path}"\n',
        pytest.param(
            '#if __has_include("{path}")\n#error "the secret was seen"\n#endif\n'
            '#include "{path}"\n',
            marks=pytest.mark.slow,
        ),
        'asm(".incbin \\"{path}\\"");\n',
        pytest.param('asm(".include \\"{path}\\"");\n', marks=pytest.mark.slow),
    ],
)
def test_a_source_reads_nothing_that_is_no_input(
    code: str, sandboxed: Daemon, secret: Path, context: Context
) -> None:
    answer = Connection(sandboxed, context).build(
        plain(cpp_sources=[code.format(path=secret) + module_source()])
    )
    assert isinstance(answer, Failed), answer
    assert "the secret was" not in answer.message
    assert "Permission denied" in answer.message or "file not found" in answer.message, answer


@pytest.mark.slow
def test_what_is_an_input_is_read(sandboxed: Daemon, tmp_path: Path, context: Context) -> None:
    inputs = tmp_path / "inputs"
    (inputs / "include").mkdir()
    (inputs / "include" / "n.h").write_text("#define N 7\n")
    (inputs / "beside.h").write_text("#define M 6\n")
    source = inputs / "a.cpp"
    source.write_text(
        '#include "beside.h"\n#include <n.h>\n' + module_source().replace("42", "N * M")
    )
    wanted = load_request([source], extra_include_paths=[str(inputs / "include")])
    connection = Connection(sandboxed, context)
    assert calls.load(connection.build(wanted), "tiny").answer() == 42
    with_torch = plain(cpp_sources=["#include <torch/types.h>\n" + module_source(8)])
    assert calls.load(connection.build(with_torch), "tiny").answer() == 8


WRITING = ["-Wl,-Map={path}", "-aux-info={path}", "-Wa,-a={path}", "-Wp,-MD,{path}"]


@pytest.mark.parametrize("flag", WRITING)
def test_a_flag_writes_nowhere_else(
    flag: str, daemon: Daemon, tmp_path: Path, context: Context
) -> None:
    """Such a flag writes where no sandbox is. In one it cannot; and a daemon leaves it to stock all
    the same.
    """
    if landlock.version() == 0:
        pytest.skip("this kernel has no Landlock, which the sandbox is made with")
    target, tree = tmp_path / "written", tmp_path / "tree"
    tree.mkdir()
    (tree / "a.cpp").write_text("int f() { return 1; }\n")
    command = ["g++", "-shared", "-fPIC", flag.format(path=target), "a.cpp", "-o", "a.so"]
    environment = {"PATH": os.environ["PATH"], "TMPDIR": str(tree)}
    confined, variables = Sandbox([], [], tree, None).command(command, environment, [], [tree])
    subprocess.run(confined, cwd=tree, env=variables, capture_output=True)
    assert not target.exists()
    subprocess.run(command, cwd=tree, env=environment, capture_output=True)
    assert target.exists()
    target.unlink()
    where = "extra_ldflags" if flag.startswith("-Wl") else "extra_cflags"
    answer = Connection(daemon, context).build(plain(**{where: [flag.format(path=target)]}))
    assert isinstance(answer, Declined) and not target.exists(), answer


# A process for which the kernel has no Landlock: seccomp answers its first system call with ENOSYS.
WITHOUT_LANDLOCK = """
import ctypes, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
steps = [
    (0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000)]
filter_ = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
packed = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(filter_))
program = ctypes.create_string_buffer(packed)
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, program, 0, 0) == 0
os.execv(sys.executable, [sys.executable, "-m", "warmcc.daemon"])
"""


@pytest.mark.parametrize("sandbox", [True, False], ids=["sandbox", "no sandbox"])
def test_no_sandbox_no_daemon(sandbox: bool) -> None:
    """Where it cannot be had, nothing runs without it: a real daemon, and a kernel that says it has
    no Landlock.
    """
    daemon = Daemon(sandbox=sandbox)
    try:
        if sandbox:
            with pytest.raises(AssertionError, match="this kernel has no Landlock"):
                daemon.start([sys.executable, "-c", WITHOUT_LANDLOCK])
            assert daemon.process is not None and daemon.process.returncode == 3
            assert not daemon.socket.exists()
        else:
            daemon.start([sys.executable, "-c", WITHOUT_LANDLOCK]).stop()
    finally:
        daemon.discard()
