"""The zygote: import torch once, then fork a child for each job.

Stand-alone (standard library and torch): it runs on the caller's Python, which need not have
warmcc, as ``python -I zygote_main.py TORCH_PARENT DAEMON_PID [CONFINE DEVICE…]``. Its standard
input is a Unix socket. Each message on it is one descriptor: a socket on which the child finds its
job and leaves its reply, both JSON behind a four-byte length. The zygote dies with the daemon, and
its children with it. CONFINE is the path of ``landlock.py`` in a sandbox: a child writes only into
the folder of its job, and to these devices, then.
"""

from __future__ import annotations

import builtins
import contextlib
import ctypes
import gc
import importlib
import inspect
import json
import logging
import os
import runpy
import signal
import socket
import struct
import sys
import warnings
from typing import Any

PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


def receive(connection: socket.socket) -> dict[str, Any]:
    data = b""
    while len(data) < 4:
        data += _some(connection, 4 - len(data))
    (size,) = struct.unpack("!I", data)
    blocks = []
    while size:
        blocks.append(_some(connection, min(size, 1 << 20)))
        size -= len(blocks[-1])
    found: dict[str, Any] = json.loads(b"".join(blocks))
    return found


def _some(connection: socket.socket, size: int) -> bytes:
    block = connection.recv(size)
    if not block:
        raise EOFError
    return block


def send(connection: socket.socket, reply: dict[str, Any]) -> None:
    data = json.dumps(reply).encode()
    connection.sendall(struct.pack("!I", len(data)) + data)


class Collector(logging.Handler):
    """Keeps what stock logs at WARNING or above."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())


def patch(extension: Any) -> None:
    """Take out of stock what compiles, imports, or touches files outside the scratch directory."""

    def nothing(*_args: object, **_kwargs: object) -> None:
        pass

    for name in (
        "_run_ninja_build",
        "_import_module_from_library",
        "verify_ninja_availability",
        "remove_extension_h_precompiler_headers",
        "_check_and_build_extension_h_precompiler_headers",
    ):
        if hasattr(extension, name):
            setattr(extension, name, nothing)


def import_torch() -> Any:
    """torch, with the module that plans are asked of. That looks for GPUs when it is imported, and
    no child of a process that has asked the driver can ask it again."""
    import torch

    asked = torch.cuda.is_available
    torch.cuda.is_available = lambda: True
    try:
        from torch.utils import cpp_extension  # noqa: F401
    finally:
        torch.cuda.is_available = asked
    return torch


def tell_of_gpus(cuda: Any, capabilities: list[list[int]]) -> None:
    """Have ``torch.cuda`` answer what stock asks of it, without the driver, which takes a good part
    of a second to answer in each process."""
    asked = cuda.get_device_capability

    def capability(device: Any = None) -> tuple[int, ...]:
        known = isinstance(device, int) and 0 <= device < len(capabilities)
        found: tuple[int, ...] = tuple(capabilities[device]) if known else asked(device)
        return found

    cuda.is_available = lambda: True
    cuda.device_count = lambda: len(capabilities)
    cuda.get_device_capability = capability


def gpus(cuda: Any) -> list[list[int]]:
    """The capabilities of the visible GPUs; empty where there is none, or none that answers."""
    with contextlib.suppress(Exception):
        if cuda.is_available():
            return [list(cuda.get_device_capability(i)) for i in range(cuda.device_count())]
    return []


def call_stock(extension: Any, job: dict[str, Any]) -> None:
    """Call ``load`` or ``load_inline`` with the request, in stock's own scratch directory."""
    request = job["request"]
    function = getattr(extension, request["call"])
    parameters = inspect.signature(function).parameters
    arguments = {key: value for key, value in request.items() if key in job["arguments"]}
    arguments["name"] = request["module_name"]
    arguments["build_directory"] = job["scratch"]
    arguments["use_pch"] = False
    arguments["verbose"] = False
    defaults = job["defaults"]
    # A parameter that this torch does not know is left out while it says nothing; else stock
    # complains by itself.
    known = {
        k: v
        for k, v in arguments.items()
        if k in parameters or (k in defaults and v != defaults[k])
    }
    function(**known)


def plan(job: dict[str, Any]) -> dict[str, Any]:
    """Stock's plan for a request: its build.ninja, the sources it wrote, and its warnings."""
    os.environ.clear()
    os.environ.update(job["environment"])
    os.chdir(job["scratch"])
    collector = Collector()
    logging.getLogger().addHandler(collector)
    import torch
    from torch.utils import cpp_extension

    if job["gpus"]:
        tell_of_gpus(torch.cuda, job["gpus"])
    # CUDA_HOME and others are read from the environment at import
    extension = importlib.reload(cpp_extension)
    if (logger := getattr(extension, "logger", None)) is not None:
        logger.addHandler(collector)
    patch(extension)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        call_stock(extension, job)
    texts: dict[str, str] = {}
    for name in sorted(os.listdir(job["scratch"])):
        with (
            contextlib.suppress(OSError, UnicodeDecodeError),
            open(name, encoding="utf-8", newline="") as file,
        ):
            texts[name] = file.read()
    ninja = texts.pop("build.ninja")
    return {
        "ninja": ninja,
        "sources": texts,
        "warnings": list(dict.fromkeys([*collector.texts, *(str(w.message) for w in caught)])),
        "torch": torch.__version__,
        "gpus": job["gpus"] or gpus(torch.cuda),
    }


def describe(error: BaseException) -> dict[str, Any]:
    """An exception by its nearest builtin type, so that the client can raise the same."""
    name = next(t.__name__ for t in type(error).__mro__ if getattr(builtins, t.__name__, None) is t)
    number = getattr(error, "errno", None)
    filename = getattr(error, "filename", None)
    return {
        "type": name,
        "message": getattr(error, "strerror", None) or str(error),
        "errno": number,
        "filename": filename if isinstance(filename, str) else None,
    }


def run_job(connection: socket.socket, confined: dict[str, Any] | None) -> None:
    """One job in a child of its own: never returns."""
    try:
        job = receive(connection)
        if confined is not None:
            writes = [job["scratch"], "/dev/null", *sys.argv[4:]]
            confined["restrict"](confined["rules"](["/"], writes, calls=False))
        try:
            reply = plan(job)
        except Exception as error:
            reply = {"error": describe(error)}
        send(connection, reply)
        os._exit(0)
    except BaseException:
        os._exit(1)


def serve(control: socket.socket, confined: dict[str, Any] | None) -> None:
    parent = os.getpid()
    while True:
        message, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            die_with_parent(parent)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # what stock logs is in the reply
            run_job(socket.socket(fileno=descriptors[0]), confined)
        for descriptor in descriptors:
            os.close(descriptor)


def die_with_parent(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; race free, given the parent's id."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def main() -> None:
    die_with_parent(int(sys.argv[2]))
    sys.path.insert(0, sys.argv[1])
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(ImportError):
        import numpy  # noqa: F401  (torch wants it, and warns in each child without)
    torch = import_torch()
    sys.path.remove(sys.argv[1])
    confined = runpy.run_path(sys.argv[3]) if len(sys.argv) > 3 else None
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the children
    gc.collect()
    gc.freeze()
    control = socket.socket(fileno=0)
    control.sendall(json.dumps({"torch": torch.__version__}).encode() + b"\n")
    serve(control, confined)


if __name__ == "__main__":
    main()
