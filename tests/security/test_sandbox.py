"""The sandbox: what it keeps from each program that the daemon runs, and what it refuses to a
caller.
"""

from __future__ import annotations

import asyncio
import os
import platform
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import zmq

from tests.support.calls import interpreter
from warmcc.daemon.cuda.warm.fork_servers import ForkServer, ServerLibrary
from warmcc.daemon.pch.lean_sample import LeanSample
from warmcc.daemon.system import landlock
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.system.sandbox import Sandbox
from warmcc.daemon.toolchain import Toolchains
from warmcc.daemon.toolchain.cuda import nvcc
from warmcc.daemon.verify.sampling import Inputs

Context = zmq.Context[zmq.Socket[bytes]]
pytestmark = pytest.mark.skipif(Sandbox.missing() is not None, reason=Sandbox.missing() or "")
PLAIN = {"PATH": os.environ["PATH"]}


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
#include <sys/syscall.h>
#include <unistd.h>
// Does what each line of its unit says and says how that went. It asks the kernel itself, because
// the server's `open` puts a child's own folder in place of the server's.
int main(void) {
  char line[512];
  FILE* unit = fopen("unit", "r");
  while (unit != NULL && fgets(line, sizeof line, unit) != NULL) {
    line[strcspn(line, "\n")] = 0;
    errno = 0;
    int done = -1;
    if (line[0] == 'r') done = syscall(SYS_openat, AT_FDCWD, line + 2, O_RDONLY);
    if (line[0] == 'w') done = syscall(SYS_openat, AT_FDCWD, line + 2, O_WRONLY | O_CREAT, 0600);
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
