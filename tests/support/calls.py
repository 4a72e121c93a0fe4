"""Requests for tests that speak the protocol directly; their sources build in a fraction of a
second.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
import time
from pathlib import Path
from typing import Any

import zmq

from tests.support.daemons import Daemon
from warmcc import __version__, protocol
from warmcc.client.loading import pybind11_state
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Interpreter, Request, one_name

MODULE = """
#include <Python.h>
static PyObject* answer(PyObject*, PyObject*) {{ return PyLong_FromLong({answer}); }}
static PyMethodDef methods[] = {{
    {{"answer", answer, METH_NOARGS, ""}}, {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef module = {{PyModuleDef_HEAD_INIT, "{name}", nullptr, -1, methods}};
PyMODINIT_FUNC PyInit_{name}() {{ return PyModule_Create(&module); }}
"""


def module_source(answer: int = 42, name: str = "tiny") -> str:
    """A whole extension module with one function, ``answer()``, that includes no header of
    torch.
    """
    return MODULE.format(answer=answer, name=name)


def interpreter() -> Interpreter:
    spec = importlib.util.find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Interpreter(
        one_name(sys.executable),
        importlib.machinery.EXTENSION_SUFFIXES[0],
        os.path.dirname(spec.origin),
    )


def request(**changes: Any) -> Request:
    """A ``load_inline`` of the tiny module, with ``changes`` to its fields."""
    known = (*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT)
    fields: dict[str, Any] = {
        "call": "load_inline",
        "name": "tiny",
        "module_name": "tiny",
        "interpreter": interpreter(),
        "environment": {name: os.environ[name] for name in known if name in os.environ},
        "cpp_sources": [module_source()],
        "no_implicit_headers": True,
    }
    return Request(**{**fields, **changes})


def load_request(sources: list[Path], **changes: Any) -> Request:
    """A ``load`` of files."""
    return request(
        call="load",
        cpp_sources=[],
        no_implicit_headers=False,
        sources=[str(p) for p in sources],
        **changes,
    )


class Connection:
    """One client as the protocol sees it; many fit into one process."""

    def __init__(self, daemon: Daemon, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.connect(f"ipc://{daemon.socket}")
        self._number = 0
        self.silence = 60.0  # seconds without a message that are too many
        self.progress: list[protocol.Progress] = []
        self.output = ""
        self.send(protocol.Hello([protocol.PROTOCOL], __version__, os.getpid()))
        assert isinstance(self.receive(), protocol.Welcome)

    def __del__(self) -> None:
        self.close()

    def send(self, message: Any) -> None:
        self.socket.send_multipart([protocol.MAGIC, protocol.encode(message)])

    def receive(self, seconds: float = 60.0) -> Any:
        """The next message. Raises TimeoutError."""
        if not self.socket.poll(int(seconds * 1000)):
            raise TimeoutError(f"no message within {seconds} s")
        return protocol.decode_daemon_message(self.socket.recv_multipart()[1])

    def ask(self, wanted: Request) -> int:
        """Send a build and give its number."""
        self._number += 1
        self.send(protocol.Build(self._number, wanted))
        return self._number

    def answer(self, seconds: float = 240.0, number: int | None = None) -> Any:
        """The next final answer (to the request of this ``number``); progress and output on the way
        are kept.
        """
        deadline = time.monotonic() + seconds
        while True:
            message = self.receive(max(0.0, min(self.silence, deadline - time.monotonic())))
            if isinstance(message, protocol.Progress):
                self.progress.append(message)
            elif isinstance(message, protocol.Output):
                self.output += message.text
            elif number in (None, getattr(message, "id", number)):
                return message

    def build(self, wanted: Request, seconds: float = 240.0) -> Any:
        return self.answer(seconds, self.ask(wanted))

    def close(self) -> None:
        self.socket.close(0)


def load(answer: Any, name: str) -> Any:
    """The module of a ``Built``, and not another one that pybind11 remembers by the name."""
    import torch  # noqa: F401  (its libraries must be there before the artifact's)

    assert isinstance(answer, protocol.Built), answer
    spec = importlib.util.spec_from_file_location(name, answer.path)
    assert spec is not None and spec.loader is not None
    with pybind11_state.Apart(name, pybind11_state.Remembered()):
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module
