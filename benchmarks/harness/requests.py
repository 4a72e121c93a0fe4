"""Requests of extensions that build in a fraction of a second, and sessions that ask for them: for
benchmarks that keep many of them under way in one process.
"""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.harness.world import World
from warmcc.client.calls import api, arguments
from warmcc.request import Request

_MODULE = """
#include <Python.h>
static PyObject* number(PyObject*, PyObject*) {{ return PyLong_FromLong({number}); }}
static PyMethodDef methods[] = {{
    {{"number", number, METH_NOARGS, ""}}, {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef module = {{PyModuleDef_HEAD_INIT, "tiny", nullptr, -1, methods}};
PyMODINIT_FUNC PyInit_tiny() {{ return PyModule_Create(&module); }}
"""


def tiny_source(number: int) -> str:
    """A whole extension module with one function, ``number()``, that includes nothing of torch."""
    return _MODULE.format(number=number)


def inline(source: str, **given: Any) -> Request:
    """What ``load_inline("tiny", source, ...)`` asks for, without headers of torch by default."""
    return _request("load_inline", cpp_sources=source, **{"no_implicit_headers": True, **given})


def files(*sources: Path) -> Request:
    """What ``load("tiny", sources)`` asks for."""
    return _request("load", sources=list(sources))


def _request(call: str, **given: Any) -> Request:
    bound = inspect.signature(getattr(api, call)).bind("tiny", **given)
    bound.apply_defaults()
    request = arguments.to_request(call, bound.arguments)
    return msgspec.structs.replace(request, module_name="tiny")


def lead_to(world: World) -> None:
    """Let sessions of this process reach the daemon of a world."""
    os.environ.update({k: v for k, v in world.environment.items() if k.startswith("WARMCC_")})
