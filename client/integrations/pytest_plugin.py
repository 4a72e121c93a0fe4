"""A pytest plugin: the fixture ``warmcc_module`` builds an extension once in a session.

def test_relu(warmcc_module):
    ext = warmcc_module("relu", "kernels/relu.cu", ["relu"])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest


@pytest.fixture(scope="session")
def warmcc_module() -> Callable[..., Any]:
    """``warmcc_module(name, sources, functions=None, **arguments)`` gives the extension.
    The arguments are those of ``warmcc.watch``. An extension that does not build fails each
    test that asks for it, with the compiler's messages."""
    from warmcc.client.live.handle import Handle, reloading
    from warmcc.client.live.report.readable import readable
    from warmcc.errors import CompileError

    made: dict[str, Handle | CompileError] = {}

    def build(
        name: str,
        sources: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        functions: str | Sequence[str] | None = None,
        **arguments: Any,
    ) -> Any:
        listed = [sources] if isinstance(sources, (str, os.PathLike)) else list(sources)
        key = repr(
            (name, [os.path.abspath(path) for path in listed], functions, sorted(arguments.items()))
        )
        if key not in made:
            try:
                made[key] = reloading(name, listed, functions, **arguments)
            except CompileError as error:
                made[key] = error
        found = made[key]
        if isinstance(found, CompileError):
            pytest.fail(f"{name} does not build\n{readable(found)}", pytrace=False)
        return found.module

    return build
