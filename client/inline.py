"""``load`` and ``load_inline``: torch's own calls, served by the daemon.

Arguments that the protocol has a place for become a request. All others (a parameter of a newer torch, a value of a
type that stock may or may not take) go to stock torch as they are, so that stock decides what they mean.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable
from typing import Any

from warmcc.client.arguments import NotCarried, check, to_request
from warmcc.errors import CompileError, DaemonError, DaemonUnavailable
from warmcc.protocol import Built, Declined, Failed, Fallback
from warmcc.request import Request

# What a failed request raises, by the name that the daemon gives; everything else is a RuntimeError.
_EXCEPTIONS: dict[str, Callable[..., Exception]] = {
    kind.__name__: kind
    for kind in (
        AssertionError, AttributeError, FileExistsError, FileNotFoundError, ImportError, IndexError, IsADirectoryError,
        KeyError, LookupError, ModuleNotFoundError, NotADirectoryError, NotImplementedError, OSError, PermissionError,
        RuntimeError, TypeError, ValueError,
    )
}  # fmt: skip


def load_inline(
    name: str,
    cpp_sources: str | list[str],
    cuda_sources: str | list[str] | None = None,
    sycl_sources: str | list[str] | None = None,
    functions: str | list[str] | dict[str, str] | None = None,
    extra_cflags: list[str] | None = None,
    extra_cuda_cflags: list[str] | None = None,
    extra_sycl_cflags: list[str] | None = None,
    extra_ldflags: list[str] | None = None,
    extra_include_paths: list[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
    **newer: Any,
) -> Any:
    """Build an extension from source strings and load it: ``torch.utils.cpp_extension.load_inline``, warm.

    Parameters and result are torch's (those of 2.11 to 2.13, in their order; newer ones are handed to torch).
    Returns the module; with ``is_python_module=False`` the path of the library, after loading it.

    Raises CompileError (a RuntimeError, with ``diagnostics``) when the sources do not compile, otherwise what torch
    raises for the same arguments.
    """
    arguments = dict(locals())
    arguments.update(arguments.pop("newer"))
    return _serve("load_inline", arguments, newer)


def load(
    name: str,
    sources: str | os.PathLike[str] | list[str] | list[os.PathLike[str]],
    extra_cflags: list[str] | None = None,
    extra_cuda_cflags: list[str] | None = None,
    extra_sycl_cflags: list[str] | None = None,
    extra_ldflags: list[str] | None = None,
    extra_include_paths: list[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    is_standalone: bool = False,
    keep_intermediates: bool = True,
    **newer: Any,
) -> Any:
    """Build an extension from source files and load it: ``torch.utils.cpp_extension.load``, warm.

    Parameters and result are torch's (those of 2.11 to 2.13, in their order; newer ones are handed to torch).
    Returns the module; with ``is_python_module=False`` the path of the library, after loading it; with
    ``is_standalone=True`` the path of the program.

    Raises CompileError (a RuntimeError, with ``diagnostics``) when the sources do not compile, otherwise what torch
    raises for the same arguments.
    """
    arguments = dict(locals())
    arguments.update(arguments.pop("newer"))
    return _serve("load", arguments, newer)


def _serve(call: str, arguments: dict[str, Any], newer: dict[str, Any]) -> Any:
    """Have the daemon build it; else stock torch, and say why."""
    from warmcc.client import fallback

    if os.environ.get("WARMCC_DISABLE") == "1":
        return fallback.stock(call, _as_given(arguments))
    try:
        if newer:
            raise NotCarried(f"unknown parameter {next(iter(newer))}")
        request = to_request(call, arguments)
    except NotCarried as reason:
        _tell_daemon(f"argument not carried: {reason}")
        return fallback.stock(call, _as_given(arguments))
    check(request)
    try:
        request, answer = _ask(request)
    except DaemonError as error:
        if os.environ.get("WARMCC_FALLBACK") == "0":
            raise
        fallback.warn_once(str(error))
        return fallback.stock(call, _as_given(arguments))
    if isinstance(answer, Declined):
        if not answer.expected:
            if os.environ.get("WARMCC_FALLBACK") == "0":
                raise DaemonUnavailable(f"the daemon could not build {request.name!r}: {answer.reason}")
            fallback.warn_once(f"the warmcc daemon could not build {request.name!r}: {answer.reason}")
        return fallback.stock(call, _as_given(arguments))
    if isinstance(answer, Failed):
        raise _exception(answer)
    return _finish(request, answer)


def _as_given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The caller's arguments for stock: what was left at its default is left out, since an older torch may lack it."""
    from warmcc.client.defaults import without_defaults

    return without_defaults(arguments)


# ---------------------------------------------------------------------- request → answer


class _Versions:
    """Which module name each variant of an extension has in this process.

    Stock calls the second variant of ``name`` ``name_v1``, and so on. A variant that comes back has its old name, and
    one that did not build has used none.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: dict[str, dict[str, str]] = {}

    def name(self, request: Request) -> tuple[str, str]:
        """The module name for a request, and the digest by which ``keep`` remembers it."""
        from warmcc import digest

        content = _content(request)
        key = digest.of_value(content)
        with self._lock:
            known = self._names.get(request.name, {})
            number = len(known)
            return known.get(key, f"{request.name}_v{number}" if number else request.name), key

    def keep(self, request: Request, key: str) -> None:
        with self._lock:
            self._names.setdefault(request.name, {}).setdefault(key, request.module_name)


def _content(request: Request) -> list[Any]:
    """What makes two requests variants of each other, files by content, as stock sees it."""
    from warmcc import digest

    left_out = {"verbose", "environment", "interpreter", "keep_intermediates", "use_pch"}
    fields = [getattr(request, name) for name in request.__struct_fields__ if name not in left_out]
    return [fields, [digest.of_file(path) for path in request.sources]]


_versions = _Versions()


def _ask(request: Request) -> tuple[Request, Built | Failed | Declined]:
    """Ask the daemon under the right module name; once more when it dies on the way."""
    import msgspec

    from warmcc import config, protocol
    from warmcc.client import session
    from warmcc.client.progress import Display

    module_name, key = _versions.name(request)
    request = msgspec.structs.replace(request, module_name=module_name)
    size = len(protocol.encode(protocol.Build(0, request)))
    limit = config.load().message_size
    if size > limit:
        raise DaemonError(f"the request has {size} bytes, the limit is {limit} (message_size in the configuration)")
    autostart = os.environ.get("WARMCC_AUTOSTART", "1") != "0"

    def once() -> Built | Failed | Declined:
        with Display(request) as display:
            connection = session.current(autostart=autostart)
            return connection.build(
                request, on_progress=display.progress, on_output=display.output, meanwhile=_import_torch
            )

    answer = _twice(once, session.forget)
    if isinstance(answer, Built):
        _versions.keep(request, key)
        if request.verbose:
            Display.commands(answer)
    return request, answer


def _twice(once: Callable[[], Any], forget: Callable[[], None]) -> Any:
    try:
        return once()
    except DaemonUnavailable:
        forget()
    try:
        return once()
    except DaemonError:
        forget()
        raise


def _import_torch() -> None:
    import torch  # noqa: F401


def _finish(request: Request, built: Built) -> Any:
    from warmcc.client import loader

    for text in built.warnings:
        warnings.warn(text, UserWarning, stacklevel=4)
    _import_torch()  # its libraries must be there before the artifact's
    return loader.load(request, built)


def _exception(failed: Failed) -> BaseException:
    """The exception that stock raises in this place."""
    kind = _EXCEPTIONS.get(failed.exception, RuntimeError)
    if failed.message.startswith("Error building extension"):
        return CompileError(failed.message, failed.diagnostics)
    if failed.errno is not None:
        return OSError(failed.errno, failed.message, failed.filename)  # of the subclass that the number stands for
    if failed.exception.startswith("Unicode"):
        return ValueError(failed.message)
    return kind(failed.message)


def _tell_daemon(reason: str) -> None:
    """Have the stock path counted, if a daemon runs."""
    from warmcc.client import session

    try:
        session.current(autostart=False).tell(Fallback(reason))
    except DaemonError:
        session.forget()
