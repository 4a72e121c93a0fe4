"""Failed requests raise what stock raises."""

from __future__ import annotations

import errno
import pickle
from typing import Any

import pytest

from warmcc.client.connection.exceptions import exception
from warmcc.errors import CompileError, RequestError, WarmccError
from warmcc.protocol import Diagnostic, Failed

TEXT = "Error building extension 'x': main.cpp:3:1: error: no\n"


def test_a_compile_error_has_its_diagnostics_and_survives_pickling() -> None:
    diagnostic = Diagnostic("cpp_sources[0]", 3, 1, "error", "no")
    error = exception(Failed(1, "RuntimeError", TEXT, [diagnostic]))
    copy = pickle.loads(pickle.dumps(error))  # as concurrent.futures does
    for one in (error, copy):
        assert type(one) is CompileError and isinstance(one, RuntimeError)
        assert str(one) == TEXT
        assert one.diagnostics == (diagnostic,)


@pytest.mark.parametrize(
    "name",
    [
        "ValueError",
        "TypeError",
        "AssertionError",
        "ImportError",
        "NotImplementedError",
        "IndexError",
    ],
)
def test_builtin_exceptions_keep_their_type(name: str) -> None:
    error = exception(Failed(1, name, "the message"))
    assert (type(error).__name__, str(error)) == (name, "the message")


@pytest.mark.parametrize(
    "name", ["RuntimeError", "SystemExit", "CalledProcessError", "Exception", "eval", "__import__"]
)
def test_unknown_names_are_runtime_errors(name: str) -> None:
    assert type(exception(Failed(1, name, "Ninja is required"))) is RuntimeError


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOENT, FileNotFoundError), (errno.EACCES, PermissionError), (errno.ENOSPC, OSError)],
)
def test_os_errors_keep_number_and_file(number: int, kind: type[Exception]) -> None:
    error: Any = exception(
        Failed(1, "OSError", "it went wrong", errno=number, filename="/some/file")
    )
    assert type(error) is kind
    assert (error.errno, error.strerror, error.filename) == (number, "it went wrong", "/some/file")


def test_errors_of_text() -> None:
    with pytest.raises(UnicodeDecodeError) as caught:
        b"ab\xffcd".decode()
    error = exception(Failed(1, "UnicodeDecodeError", str(caught.value)))
    assert type(error) is UnicodeDecodeError
    assert error.reason == "invalid start byte" and error.start == 2
    assert isinstance(exception(Failed(1, "UnicodeEncodeError", "some text")), UnicodeError)


def test_a_refused_request_is_a_request_error() -> None:
    assert type(exception(Failed(1, "RequestError", "no"))) is RequestError
    assert issubclass(RequestError, WarmccError)
