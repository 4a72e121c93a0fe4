"""From the arguments of a call to a request, and from a call to the arguments that stock shall see."""

from __future__ import annotations

import os
import sys
from typing import Any

from warmcc.errors import RequestError
from warmcc.request import KEYED_ENVIRONMENT, PASSED_ENVIRONMENT, Interpreter, Request

NAME_LIMIT = 200  # bytes, so that a file name with its suffix stays under the usual 255


class NotCarried(Exception):
    """The protocol has no place for an argument; stock shall see it."""


def _texts(value: Any, what: str) -> list[str]:
    """A string or a list of strings as a list of strings that can be sent."""
    if value is None:
        return []
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(text, str) for text in found):
        raise NotCarried(f"{what} of type {type(value).__name__}")
    try:
        "".join(found).encode("utf-8")
    except UnicodeEncodeError:
        raise NotCarried(f"{what} that is not Unicode text") from None
    return [str(text) for text in found]


def _flags(value: Any, what: str) -> list[str]:
    # Stock iterates over flags: a plain string there is a mistake of its own kind, and stock's to report.
    if isinstance(value, str):
        raise NotCarried(f"{what} of type str")
    return _texts(list(value) if isinstance(value, tuple) else value, what)


def _tristate(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _functions(value: Any) -> list[str] | dict[str, str] | None:
    if isinstance(value, dict):
        keys, texts = _texts(list(value), "functions"), _texts(list(value.values()), "functions")
        return dict(zip(keys, texts, strict=True))
    return None if value is None else _texts(value, "functions")


def _paths(value: Any) -> list[str]:
    """Sources of ``load``, absolute as stock makes them."""
    found = [value] if isinstance(value, str) else value
    if not isinstance(found, list) or not all(isinstance(path, (str, os.PathLike)) for path in found):
        raise NotCarried(f"sources of type {type(value).__name__}")
    return _texts([os.path.abspath(path) for path in found], "sources")


def to_request(call: str, given: dict[str, Any]) -> Request:
    """The request that a call makes. Raises NotCarried, and FileNotFoundError as stock does."""
    name = given["name"]
    directory = given["build_directory"]
    if not isinstance(name, str) or not isinstance(directory, (str, os.PathLike, type(None))):
        raise NotCarried("name or build_directory that is no text")
    _texts([name, os.fspath(directory or "")], "name or build_directory")
    fields: dict[str, Any] = {
        key: _flags(given[key], key)
        for key in ("extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags", "extra_ldflags")
    }
    fields["extra_include_paths"] = [
        os.path.abspath(path.strip()) for path in _flags(given["extra_include_paths"], "extra_include_paths")
    ]
    fields |= {key: _tristate(given[key]) for key in ("with_cuda", "with_sycl")}
    fields |= {key: bool(given[key]) for key in ("verbose", "is_python_module", "keep_intermediates")}
    if call == "load":
        fields["sources"] = _paths(given["sources"])
        fields["is_standalone"] = bool(given["is_standalone"])
    else:
        fields |= {key: _texts(given[key] or [], key) for key in ("cuda_sources", "sycl_sources")}
        fields["cpp_sources"] = _texts(given["cpp_sources"], "cpp_sources")
        fields["functions"] = _functions(given["functions"])
        fields |= {key: bool(given[key]) for key in ("with_pytorch_error_handling", "no_implicit_headers")}
        fields["use_pch"] = given["use_pch"] is True
    if not name:
        raise RequestError("the name of an extension must not be empty")
    return Request(
        call=call,  # type: ignore[arg-type]
        name=name,
        module_name=name,
        interpreter=_interpreter(),
        environment={k: os.environ[k] for k in (*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT) if k in os.environ},
        build_directory=os.path.abspath(directory) if directory else None,
        **fields,
    )


def _interpreter() -> Interpreter:
    """The Python that runs this and its torch, found without importing it. Raises ModuleNotFoundError."""
    import importlib.machinery
    import importlib.util

    torch = sys.modules.get("torch")
    version = None if torch is None else str(getattr(torch, "__version__", "")) or None
    origin = getattr(torch, "__file__", None) if torch is not None else None
    if origin is None:
        spec = importlib.util.find_spec("torch")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError("No module named 'torch'", name="torch")
        origin = spec.origin
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    return Interpreter(sys.executable, suffix, os.path.dirname(origin), version)


def check(request: Request) -> None:
    """What stock finds out before it starts a compiler, and names that can name no file."""
    name = request.name
    if name in (".", "..") or any(c in name for c in "/\0") or not name.isprintable() or any(map(str.isspace, name)):
        raise RequestError(f"{name!r} cannot name an extension: it becomes a file name and a macro's value")
    if len(name.encode()) > NAME_LIMIT:
        raise RequestError(f"the name of an extension may have {NAME_LIMIT} bytes, this one has {len(name.encode())}")
    if request.is_python_module and request.is_standalone:
        raise ValueError("`is_python_module` and `is_standalone` are mutually exclusive.")
    for path in (*request.sources, *filter(None, [request.build_directory])):
        if not os.path.exists(path):
            raise FileNotFoundError(2, "No such file or directory", path)
