"""The compile worker: load NVRTC once, then fork a child for each kernel.

Stand-alone (standard library only), as ``python -I -S worker_main.py NVRTC_PY LIBRARY MEMORY
DAEMON_PID``. Its standard input is a Unix socket. Each message on it is one descriptor: a socket on
which the child finds its job and leaves its reply, both JSON behind a four-byte length. A child
that crashes, or takes all memory, takes nothing with it; one whose job nobody waits for ends. The
worker dies with the daemon, and its children with it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import resource
import runpy
import signal
import socket
import struct
import sys
import threading
import warnings
from typing import Any

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
# What each child finds done: the library's own first steps, and the builtins that it loads.
_FIRST = 'extern "C" __global__ void first(float* x) { x[threadIdx.x] += 1.0f; }\n'


def receive(connection: socket.socket) -> dict[str, Any]:
    (size,) = struct.unpack("!I", _all(connection, 4))
    found: dict[str, Any] = json.loads(_all(connection, size))
    return found


def _all(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        block = connection.recv(size - len(data))
        if not block:
            raise EOFError
        data += block
    return bytes(data)


def send(connection: socket.socket, reply: dict[str, Any]) -> None:
    data = json.dumps(reply).encode()
    connection.sendall(struct.pack("!I", len(data)) + data)


def end_when_left(connection: socket.socket) -> None:
    """End this process as soon as the other side closes its end."""

    def wait() -> None:
        try:
            connection.recv(1)
        finally:
            os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def stand_aside(connection: socket.socket) -> None:
    """Give way to builds: with a session of its own, which the daemon can stop."""
    os.setsid()
    os.nice(10)
    send(connection, {"pid": os.getpid()})


def compiled(binding: dict[str, Any], nvrtc: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Compile what a job describes, and write it to the job's file, if it names one."""
    os.chdir(job["folder"])  # NVRTC looks here for what is included in quotes
    try:
        image, names, log = nvrtc.compile(job["source"], job["file"], job["options"], job["names"])
    except (binding["DoesNotCompile"], binding["NvrtcError"]) as error:
        return {"failed": str(error)}
    if job["made"]:
        with open(job["made"], "xb") as file:
            file.write(image)
    return {"names": names, "log": log}


def child(connection: socket.socket, binding: dict[str, Any], nvrtc: Any, memory: int) -> None:
    """Do one job, and end this process."""
    code = 1
    try:
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        job = receive(connection)
        if job["aside"]:
            stand_aside(connection)
        end_when_left(connection)
        try:
            reply = compiled(binding, nvrtc, job)
        except MemoryError:
            reply = {"failed": "NVRTC ran out of memory"}
        except Exception as error:
            reply = {"broken": f"{type(error).__name__}: {error}"}
        send(connection, reply)
        code = 0
    finally:
        os._exit(code)


def main() -> None:
    binding_file, library, memory, daemon = sys.argv[1:5]
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(daemon):
        os._exit(1)  # it ended before this was tied to it
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # children are not waited for
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    binding = runpy.run_path(binding_file)
    control = socket.socket(fileno=os.dup(0))
    try:
        nvrtc = binding["Nvrtc"](library)
        nvrtc.compile(_FIRST, "first.cu", [], [])
    except (binding["NvrtcError"], binding["DoesNotCompile"]) as error:
        control.sendall(json.dumps({"broken": str(error)}).encode())
        os._exit(1)
    gc.freeze()
    # NVRTC may have started a thread, which no job of a fork needs; Python warns of it.
    warnings.simplefilter("ignore", DeprecationWarning)
    control.sendall(json.dumps({"version": nvrtc.version}).encode())
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            os._exit(0)
        for descriptor in descriptors:
            with socket.socket(fileno=descriptor) as connection:
                if os.fork() == 0:
                    control.close()
                    child(connection, binding, nvrtc, int(memory))


if __name__ == "__main__":
    main()
