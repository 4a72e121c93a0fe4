"""The sandbox: what it keeps from each program that the daemon runs, and what it refuses to a
caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import zmq

from tests.support import calls
from tests.support.calls import Connection, interpreter, load_request, module_source, request
from tests.support.daemons import Daemon
from warmcc.daemon.cuda.warm.fork_servers import ForkServer, ServerLibrary
from warmcc.daemon.pch.lean_sample import LeanSample
from warmcc.daemon.plan.sandboxed import refused
from warmcc.daemon.system import landlock
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.system.sandbox import Sandbox, make_helper
from warmcc.daemon.toolchain import Toolchains
from warmcc.daemon.toolchain.cuda import nvcc
from warmcc.daemon.verify.sampling import Inputs
from warmcc.errors import ConfigError
from warmcc.protocol import Built, Failed
from warmcc.request import Interpreter

Context = zmq.Context[zmq.Socket[bytes]]
pytestmark = pytest.mark.skipif(Sandbox.missing() is not None, reason=Sandbox.missing() or "")
PLAIN = {"PATH": os.environ["PATH"]}


@pytest.fixture
def roots(tmp_path: Path) -> Path:
    """The folder that builds may read; what lies beside it is secret."""
    (tmp_path / "secret.h").write_text('#error "the secret was read"\n')
    (tmp_path / "roots").mkdir()
    return tmp_path / "roots"


@pytest.fixture(scope="module", params=["C", "Python"])
def helper(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path | None:
    """What sets the rules: both have to do the same."""
    if request.param == "Python":
        return None
    made = make_helper(tmp_path_factory.mktemp("helper"))
    assert made is not None
    return made


@pytest.fixture
def runner(roots: Path, tmp_path: Path, helper: Path | None) -> Iterator[Runner]:
    (tmp_path / "staging").mkdir()
    (tmp_path / "own").mkdir()
    with contextlib.closing(
        Runner(sandbox=Sandbox([str(roots)], [tmp_path / "own"], tmp_path / "staging", helper))
    ) as one:
        yield one


@pytest.fixture
def confined(helper: Path | None) -> Callable[[str, list[str]], str]:
    """What Python code prints under the confinement, which may read everything."""
    front = [str(helper)] if helper is not None else [sys.executable, "-I", "-S", landlock.__file__]

    def run(code: str, write: list[str]) -> str:
        command = [
            *front,
            landlock.rules(["/"], [*write, "/dev/null"]),
            sys.executable,
            "-I",
            "-c",
            code,
        ]
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60).stdout

    return run


Confined = Callable[[str, list[str]], str]


# ---------------------------------------------------------------------- what no program may do


ASKS = """
import socket, sys
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
    for make in (lambda: socket.socket(socket.AF_UNIX, kind),
                 lambda: socket.socketpair(socket.AF_UNIX, kind)):
        try:
            made = make()
            (made if isinstance(made, socket.socket) else made[0]).connect({path!r})
            print("connected")
        except OSError as error:
            print(error.errno)
for family, kind in ((socket.AF_INET, socket.SOCK_STREAM), (socket.AF_INET, socket.SOCK_DGRAM)):
    try:
        socket.socket(family, kind)
        print("opened")
    except OSError as error:
        print(error.errno)
"""


def test_no_socket_is_opened(tmp_path: Path, confined: Confined) -> None:
    """Neither a daemon's, which would build outside of the sandbox, nor the network's."""
    path = str(tmp_path / "socket")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        free = subprocess.run(
            [sys.executable, "-I", "-c", ASKS.format(path=path)], capture_output=True, text=True
        )
        assert "connected" in free.stdout, "nothing but the sandbox stands in the way"
        assert confined(ASKS.format(path=path), [str(tmp_path)]).split() == ["1"] * 8


def test_no_other_process_is_reached(confined: Confined) -> None:
    """Neither traced, nor read, nor (with Landlock's scopes, Linux 6.12) signalled."""
    code = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
pid = {pid}
print(libc.ptrace(16, pid, 0, 0), ctypes.get_errno())
print(libc.process_vm_readv(pid, None, 0, None, 0, 0), ctypes.get_errno())
try:
    open("/proc/%d/mem" % pid, "rb")
    print("open")
except OSError:
    print("closed")
try:
    os.kill(pid, 9)
    print("killed")
except OSError as error:
    print(error.errno)
"""
    with subprocess.Popen(["sleep", "1000"]) as other:
        try:
            found = confined(code.format(pid=other.pid), []).splitlines()
            assert found[:3] == ["-1 1", "-1 1", "closed"]
            if landlock.version() >= 6:
                assert found[3] == "1" and other.poll() is None
        finally:
            other.kill()


@pytest.mark.skipif(
    platform.machine() != "x86_64", reason="this machine has one set of system calls only"
)
def test_the_other_sets_of_system_calls_are_closed(tmp_path: Path, confined: Confined) -> None:
    code = (
        "import ctypes; l = ctypes.CDLL(None, use_errno=True); print(l.syscall(41 | 1 << 30, "
        "1), ctypes.get_errno())"
    )
    assert confined(code, []) == "-1 1\n"
    program = tmp_path / "old.c"  # the 32 bit getpid, and what the kernel says to it
    program.write_text(
        "#include <stdio.h>\n"
        'int main(void) { int r; __asm__ volatile("int $0x80" : "=a"(r) : "a"(20) : "memory");'
        ' printf("%d\\n", r); return 0; }\n'
    )
    subprocess.run(["gcc", str(program), "-o", str(tmp_path / "old")], check=True)
    if (
        subprocess.run([tmp_path / "old"], capture_output=True).returncode == 0
    ):  # else the kernel has no such calls
        code = (
            f"import subprocess; print(subprocess.run([{str(tmp_path / 'old')!r}], "
            f"capture_output=True).stdout)"
        )
        assert confined(code, []) == "b'-1\\n'\n"


def test_nothing_of_the_callers_runs_before_the_confinement(tmp_path: Path, runner: Runner) -> None:
    """A library that the caller's variables have loaded is loaded by the command, and not by what
    confines it.
    """
    library, marker = tmp_path / "own" / "evil.so", tmp_path / "marker"
    source = (
        f"#include <stdio.h>\n"
        f'__attribute__((constructor)) void run(void) {{ fopen("{marker}", "w"); puts("ran"); }}\n'
    )
    (tmp_path / "evil.c").write_text(source)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", str(tmp_path / "evil.c"), "-o", str(library)], check=True
    )
    work = tmp_path / "staging"
    environment = {**PLAIN, "LD_PRELOAD": str(library)}
    done = asyncio.run(
        runner.run(["true"], cwd=work, environment=environment, timeout=60.0, aside=True)
    )
    assert done.output == "ran\n" and not marker.exists()


def test_no_name_is_a_rule(runner: Runner, roots: Path, tmp_path: Path) -> None:
    """What a caller says cannot end its line in the rules and begin another."""
    environment = {**PLAIN, "LD_LIBRARY_PATH": f"/usr/lib\nr {tmp_path}\nw {tmp_path}"}
    with pytest.raises(OSError, match="newline"):
        asyncio.run(
            runner.run(["true"], cwd=tmp_path / "staging", environment=environment, timeout=60.0)
        )
    with pytest.raises(OSError, match="newline"):
        landlock.rules(["/usr\nr /"], [])


# ---------------------------------------------------------------- each program that the daemon runs


READS = ['#include "{}"\n', 'asm(".incbin \\"{}\\"");\n', 'asm(".include \\"{}\\"");\n']


def compiles(runner: Runner, folder: Path, text: str) -> str:
    """What g++ says of a source."""
    (folder / "a.cpp").write_text(text)
    words = ["g++", "-c", "a.cpp", "-o", "a.o"]
    environment = {**PLAIN, "TMPDIR": str(folder)}
    done = asyncio.run(runner.run(words, cwd=folder, environment=environment, timeout=60.0))
    return "" if done.code == 0 else done.output


def test_a_command_reads_what_it_is_given(runner: Runner, roots: Path, tmp_path: Path) -> None:
    work = tmp_path / "staging"
    (roots / "input.h").write_text("int input;\n")
    assert compiles(runner, work, f'#include "{roots}/input.h"\n') == ""
    for read in READS:
        said = compiles(runner, work, read.format(tmp_path / "secret.h"))
        assert "Permission denied" in said or "file not found" in said, said
        assert "the secret was read" not in said


def test_a_sample_reads_what_it_is_given(runner: Runner, tmp_path: Path) -> None:
    text = f'#include "{tmp_path}/secret.h"\nint f() {{ return 1; }}\n'
    work = tmp_path / "staging"
    (work / "none.h").write_text("")
    environment = {**PLAIN, "TMPDIR": str(work)}
    sample = LeanSample(
        "name",
        "maker",
        Inputs({}),
        ["g++"],
        "",
        environment,
        work / "none.h",
        text,
        text,
        "int f()",
        runner,
    )
    with pytest.raises(RuntimeError, match="Permission denied"):
        asyncio.run(sample.differing(work))


PROGRAM = r"""
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
// Does what each line of its unit says, and says how that went.
int main(void) {
  char line[512];
  FILE* unit = fopen("unit", "r");
  while (unit != NULL && fgets(line, sizeof line, unit) != NULL) {
    line[strcspn(line, "\n")] = 0;
    errno = 0;
    int done = -1;
    if (line[0] == 'r') done = open(line + 2, O_RDONLY);
    if (line[0] == 'w') done = open(line + 2, O_WRONLY | O_CREAT, 0600);
    if (line[0] == 's') done = socket(AF_UNIX, SOCK_STREAM, 0);
    if (line[0] == 'k') done = kill(getppid(), SIGKILL);
    fprintf(stderr, "%s: %s\n", line, done >= 0 ? "done" : strerror(errno));
  }
  for (int number = 3; number < 64; ++number) {
    int kind;
    socklen_t size = sizeof kind;
    if (getsockopt(number, SOL_SOCKET, SO_TYPE, &kind, &size) == 0)
      fprintf(stderr, "socket %d\n", number);
  }
  return 0;
}
"""


@pytest.mark.parametrize("ahead", [False, True])
def test_a_fork_sees_its_own_unit(
    ahead: bool, runner: Runner, roots: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is confined before it reads its unit: another's folder, the server's and the roots are not
    its to write, nor are processes and sockets its to reach."""
    (tmp_path / "run").mkdir(mode=0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path / "run"))
    (roots / "input.h").write_text("")
    staging = tmp_path / "staging"
    (staging / "other").mkdir()
    (staging / "other" / "unit").write_text("")
    server_folder = tmp_path / "own" / "level" / "server"
    server_folder.mkdir(parents=True)
    (server_folder / "program.c").write_text(PROGRAM)
    subprocess.run(["gcc", "program.c", "-o", "program"], cwd=server_folder, check=True)

    async def life() -> str:
        library = await ServerLibrary(tmp_path / "own" / "library", runner).path("gcc", PLAIN)
        server = ForkServer("program", runner, server_folder)
        await server.start(["./program"], PLAIN, library, stop="unit")
        mine = staging / "mine"
        mine.mkdir()
        lines = [
            f"r {roots}/input.h", "w made", f"r {tmp_path}/secret.h", "r /etc/passwd",
            f"r {staging}/other/unit", f"w {staging}/other/made", f"w {server_folder}/made",
            f"w {roots}/made", "s", "k",
        ]  # fmt: skip
        (mine / "unit").write_text("\n".join(lines))
        try:
            if ahead:
                await server.fork_ahead()
            served = await server.run(mine, 60.0)
            assert served.code == 0
            assert (await server.run(mine, 60.0)).output == served.output
            return served.output
        finally:
            await server.close()

    said = asyncio.run(life()).replace(str(tmp_path), "T")
    denied, forbidden = "Permission denied", "Operation not permitted"
    expected = {
        "r T/roots/input.h": "done", "w made": "done", "r T/secret.h": denied,
        "r /etc/passwd": denied, "r T/staging/other/unit": denied, "w T/staging/other/made": denied,
        "w T/own/level/server/made": denied, "w T/roots/made": denied, "s": forbidden,
        "k": forbidden if landlock.version() >= 6 else "done",
    }  # fmt: skip
    assert dict(line.split(": ", 1) for line in said.splitlines()) == expected, (
        "and no socket of the server is open"
    )


def test_a_toolchain_is_the_same_in_the_sandbox(roots: Path, tmp_path: Path) -> None:
    """What is asked of compilers, linkers, Python and nvcc (where that is) is answered as ever."""
    sandbox = Sandbox([str(roots)], [], tmp_path, None)
    environment = {**PLAIN, "CUDA_HOME": "/usr/local/cuda"}
    with_cuda = nvcc(environment) is not None
    free, confined = (
        asyncio.run(
            Toolchains(given).identify(environment, "g++", interpreter(), with_cuda=with_cuda)
        )
        for given in (None, sandbox)
    )
    assert confined == free
    assert len(free.linkers) >= 1 and free.include_folders
    if with_cuda:
        assert confined.cuda is not None and confined.cuda.variables.get("TOP")


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


# ---------------------------------------------------------------------- what is refused


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
