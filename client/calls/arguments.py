"""From the arguments of a call to a request, and to the arguments that stock torch gets.

What the protocol has no place for (a value of a type that stock may or may not take, text that is
no Unicode) is ``NotCarried``: stock gets the call as it was made, and decides what it means.
"""

from __future__ import annotations

import errno
import functools
import importlib.machinery
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable, Container
from typing import Any, ParamSpec

from warmcc.errors import RequestError
from warmcc.request import (
    KEYED_ENVIRONMENT,
    PASSED_ENVIRONMENT,
    Interpreter,
    Request,
    one_name,
    without_launcher,
)

_P = ParamSpec("_P")

# Bytes, so that file names with suffixes stay under the usual 255; stock has its own limits.
NAME_LIMIT = 200


class NotCarried(Exception):
    """The protocol has no place for an argument, which goes to stock."""


class LeftToStock(Exception):
    """The daemon leaves this one to stock by design."""


def to_request(call: str, given: dict[str, Any]) -> Request:
    """The request that a call makes.
    Raises NotCarried, and RequestError for a name that stock makes files of that nobody wants
    (``..``, ``a/b``)."""
    name = _name(given["name"])
    fields: dict[str, Any] = {
        key: _flags(given[key], key)
        for key in ("extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags")
    }
    fields["extra_ldflags"] = _stripped(_texts(given["extra_ldflags"] or [], "extra_ldflags"))
    fields["extra_include_paths"] = list(
        map(os.path.abspath, _flags(given["extra_include_paths"], "extra_include_paths"))
    )
    fields |= {
        key: None if given[key] is None else bool(given[key]) for key in ("with_cuda", "with_sycl")
    }
    fields |= {
        key: bool(given[key]) for key in ("verbose", "is_python_module", "keep_intermediates")
    }
    if call == "load":
        fields["sources"] = _paths(given["sources"])
        fields["is_standalone"] = bool(given["is_standalone"])
    else:
        fields |= {
            key: _text_or_texts(given[key] or [], key) for key in ("cuda_sources", "sycl_sources")
        }
        fields["cpp_sources"] = _text_or_texts(given["cpp_sources"], "cpp_sources")
        fields["functions"] = _functions(given["functions"])
        fields |= {
            key: bool(given[key]) for key in ("with_pytorch_error_handling", "no_implicit_headers")
        }
        fields["use_pch"] = given["use_pch"] is True
    directory = directory_as_given(given)
    return Request(
        call=call,  # type: ignore[arg-type]
        name=name,
        module_name=name,
        interpreter=interpreter(),
        environment=environment(),
        build_directory=os.path.abspath(directory) if directory is not None else None,
        **fields,
    )


def directory_as_given(given: dict[str, Any]) -> str | None:
    """The argument ``build_directory`` as a string, None when it was not given."""
    directory = given["build_directory"] or None
    if not isinstance(directory, (str, os.PathLike, type(None))):
        raise NotCarried(f"build_directory of type {type(directory).__name__}")
    path = None if directory is None else os.fspath(directory)
    if isinstance(path, bytes):
        raise NotCarried("build_directory as bytes")
    return path


def in_stocks_order(function: Callable[_P, Any]) -> Callable[_P, Any]:
    """Map positional arguments to the parameters of the installed torch.
    In 2.7 the parameters for SYCL came between others. The first three never moved; for more,
    torch is imported. Raises TypeError as stock does."""

    @functools.wraps(function)
    def call(*positional: _P.args, **named: _P.kwargs) -> Any:
        if len(positional) <= 3:
            return function(*positional, **named)
        from torch.utils import cpp_extension

        stock = getattr(cpp_extension, function.__name__)
        bound: dict[str, Any] = inspect.signature(stock).bind(*positional, **named).arguments
        return function(**bound)  # type: ignore[call-arg]

    return call


def without_defaults(function: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """The arguments that differ from their defaults.
    An older torch may lack a parameter that the caller did not use.

    Compared by identity, so that no value's ``==`` is asked.
    """
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
    }
    return {
        key: value
        for key, value in given.items()
        if key not in defaults or value is not defaults[key]
    }


def complete(call: str, given: dict[str, Any]) -> dict[str, Any]:
    """All arguments of a call, those that are given and the defaults.
    Raises RequestError for one that it has not."""
    from warmcc.client.calls import api

    parameters = inspect.signature(getattr(api, call)).parameters
    known = {
        name: one.default for name, one in parameters.items() if one.kind is not one.VAR_KEYWORD
    }
    if unknown := sorted(set(given) - set(known)):
        raise RequestError(f"{given['name']}: {call} has no argument {unknown[0]!r}")
    known["cpp_sources"] = [] if call == "load_inline" else known.get("cpp_sources")
    whole = {**{name: value for name, value in known.items() if name in parameters}, **given}
    if call == "load_inline" and not (whole["cpp_sources"] or whole.get("cuda_sources")):
        raise RequestError(f"{given['name']}: no sources given")
    return whole


def check(
    request: Request, given: dict[str, Any], directory: str | None, read: Container[str] = ()
) -> None:
    """What stock finds out before it starts a compiler, in its order and with its exceptions.

    ``directory`` is the folder below TORCH_EXTENSIONS_DIR that stock makes first, if the call has
    one; ``read`` are files that were read just now.
    """
    if directory is not None and request.build_directory is None and not os.path.isdir(directory):
        os.makedirs(directory, exist_ok=True)
    if request.is_python_module and request.is_standalone:
        raise ValueError("`is_python_module` and `is_standalone` are mutually exclusive.")
    if request.call == "load":
        for source, path in zip(_listed(given["sources"]), request.sources, strict=True):
            if path not in read:
                with open(source, "rb"):
                    pass
    if request.build_directory is not None:
        first = os.path.join(
            request.build_directory, "lock" if request.call == "load" else "main.cpp"
        )
        if (
            request.call == "load"
            and not os.path.isdir(request.build_directory)
            and _load_makes_its_folder()
        ):
            os.makedirs(request.build_directory, exist_ok=True)
        if not os.path.isdir(request.build_directory):
            number = errno.ENOTDIR if os.path.exists(request.build_directory) else errno.ENOENT
            raise OSError(number, os.strerror(number), first)
        if not os.access(request.build_directory, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), first)


def _load_makes_its_folder() -> bool:
    """Whether this torch's ``load`` makes a missing ``build_directory``.
    It does since it locks with the package filelock instead of its own FileBaton."""
    from torch.utils import cpp_extension

    return not hasattr(cpp_extension, "FileBaton")


# ---------------------------------------------------------------------- one kind of argument each


def _name(value: Any) -> str:
    if type(value) is not str:
        raise NotCarried(f"name of type {type(value).__name__}")
    if "\0" in value or len(value.encode("utf-8", "replace")) > NAME_LIMIT:
        raise NotCarried("name that cannot be a file name")
    reason = ""
    if value in ("", ".", "..") or "/" in value:
        reason = "it names files outside the extension's folder"
    elif any(map(str.isspace, value)):
        reason = "it becomes part of a command, and must not contain white space"
    if reason:
        raise RequestError(f"Error building extension {value!r}: invalid extension name: {reason}")
    return value


def _texts(value: Any, what: str) -> list[str]:
    """A list of strings that can be sent."""
    if not isinstance(value, list) or not all(type(text) is str for text in value):
        raise NotCarried(f"{what} of type {type(value).__name__}")
    return list(value)


def _text_or_texts(value: Any, what: str) -> list[str]:
    return [value] if type(value) is str else _texts(value, what)


def _flags(value: Any, what: str) -> list[str]:
    # Stock iterates over these: a tuple does, and so does a plain string, but that is a mistake and
    # stock's to report.
    return _stripped(_texts(list(value) if isinstance(value, tuple) else value or [], what))


def _stripped(texts: list[str]) -> list[str]:
    """As stock takes them: public code has lines as flags."""
    return [text.strip() for text in texts]


def _functions(value: Any) -> list[str] | dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        return _text_or_texts(value, "functions")
    names = _texts(list(value), "functions")
    # As stock's f-string does
    return dict(zip(names, [format(text) for text in value.values()], strict=True))


def _listed(value: Any) -> list[Any]:
    return [value] if isinstance(value, str) else list(value)


def _paths(value: Any) -> list[str]:
    """Sources of ``load``, absolute as stock makes them."""
    if not isinstance(value, (str, list, tuple)):
        raise NotCarried(f"sources of type {type(value).__name__}")
    if not all(isinstance(path, (str, os.PathLike)) for path in _listed(value)):
        raise NotCarried("a source that is not a path")
    return _texts([os.path.abspath(path) for path in _listed(value)], "sources")


def environment() -> dict[str, str]:
    """The variables of this process that a build may depend on, or uses."""
    known = (*KEYED_ENVIRONMENT, *PASSED_ENVIRONMENT)
    return without_launcher({name: os.environ[name] for name in known if name in os.environ})


def interpreter() -> Interpreter:
    """The Python that runs this and its torch, found without importing it."""
    torch = sys.modules.get("torch")
    origin = getattr(torch, "__file__", None)
    if origin is None:
        try:
            spec = importlib.util.find_spec("torch")
        except ValueError:  # sys.modules holds something else under that name
            spec = None
        origin = spec.origin if spec is not None else None
    if not origin or not sys.executable:
        raise NotCarried("torch or the interpreter has no path")
    version = str(getattr(torch, "__version__", "")) or None
    return Interpreter(
        one_name(os.path.abspath(sys.executable)),
        importlib.machinery.EXTENSION_SUFFIXES[0],
        os.path.dirname(origin),
        version,
    )
