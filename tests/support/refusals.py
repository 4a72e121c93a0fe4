"""Requests to the daemon of a machine that is shared, and what it refuses of them."""

from __future__ import annotations

from typing import Any

from warmcc.daemon.plan.machine import Machine
from warmcc.daemon.plan.policy import Forbidden, Policy
from warmcc.request import Interpreter, Request

PYTHON = Interpreter("/opt/bin/python", ".cpython-311.so", "/opt/torch")
MACHINE = Machine(
    "/usr/bin:/bin", frozenset(("g++", "/usr/bin/g++")), frozenset(("/usr/local/cuda",)), (PYTHON,)
)


def request(**changes: Any) -> Request:
    fields: dict[str, Any] = {
        "call": "load_inline", "name": "tiny", "module_name": "tiny", "interpreter": PYTHON,
        "environment": {"PATH": "/usr/bin"}, "cpp_sources": ["int a;"],
    }  # fmt: skip
    return Request(**{**fields, **changes})


def refused(**changes: Any) -> str | None:
    """What a request is refused for; None when it is taken."""
    try:
        Policy(MACHINE).admit(request(**changes))
    except Forbidden as reason:
        return str(reason)
    return None
