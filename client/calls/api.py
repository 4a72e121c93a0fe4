"""``load`` and ``load_inline``: torch's own calls, served by the daemon.

Arguments that the protocol has a place for become a request. All others (a parameter of a newer
torch, a value of a type that stock may or may not take) go to stock torch as they are, so that
stock decides what they mean.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import msgspec

from warmcc.client.calls import arguments as args
from warmcc.client.calls import bundled
from warmcc.client.calls.progress import Display, show_commands
from warmcc.client.calls.variants import content, variants
from warmcc.client.connection import ask, remembering, session
from warmcc.client.connection.offline import is_offline
from warmcc.client.loading import loader
from warmcc.errors import DaemonError, DaemonUnavailable, OfflineError
from warmcc.protocol import Build, Built, Declined, Failed, Fallback, encode
from warmcc.request import Request


@args.in_stocks_order
def load_inline(
    name: str, cpp_sources: str | list[str], cuda_sources: str | list[str] | None = None,
    sycl_sources: str | list[str] | None = None,
    functions: str | list[str] | dict[str, str] | None = None,
    extra_cflags: list[str] | None = None, extra_cuda_cflags: list[str] | None = None,
    extra_sycl_cflags: list[str] | None = None, extra_ldflags: list[str] | None = None,
    extra_include_paths: list[str] | None = None,
    build_directory: str | os.PathLike[str] | None = None, verbose: bool = False,
    with_cuda: bool | None = None, with_sycl: bool | None = None, is_python_module: bool = True,
    with_pytorch_error_handling: bool = True, keep_intermediates: bool = True,
    use_pch: bool = False, no_implicit_headers: bool = False, **newer: Any,
) -> Any:  # fmt: skip
    """Build an extension from source strings and load it, as torch's ``load_inline`` does.
    The original: ``torch.utils.cpp_extension.load_inline``.

    Parameters and result are torch's (those of 2.11 to 2.13; newer ones are handed to torch, and
    arguments by position mean what they mean to the installed torch).
    Returns the module; with ``is_python_module=False`` the path of the library, after loading it.

    Raises CompileError (a RuntimeError, with ``diagnostics``) when the sources do not compile,
    otherwise what torch raises for the same arguments.
    """
    given = dict(locals())
    given.update(given.pop("newer"))
    return _serve("load_inline", given, newer)


@args.in_stocks_order
def load(
    name: str, sources: str | list[str] | list[os.PathLike[str]],
    extra_cflags: list[str] | None = None, extra_cuda_cflags: list[str] | None = None,
    extra_sycl_cflags: list[str] | None = None, extra_ldflags: list[str] | None = None,
    extra_include_paths: list[str] | None = None,
    build_directory: str | os.PathLike[str] | None = None, verbose: bool = False,
    with_cuda: bool | None = None, with_sycl: bool | None = None, is_python_module: bool = True,
    is_standalone: bool = False, keep_intermediates: bool = True, **newer: Any,
) -> Any:  # fmt: skip
    """Build an extension from source files and load it: ``torch.utils.cpp_extension.load``, warm.

    Parameters and result are torch's (those of 2.11 to 2.13; newer ones are handed to torch, and
    arguments by position mean what they mean to the installed torch).
    Returns the module; with ``is_python_module=False`` the path of the library, after loading it;
    with ``is_standalone=True`` the path of the program.

    Raises CompileError (a RuntimeError, with ``diagnostics``) when the sources do not compile,
    otherwise what torch raises for the same arguments.
    """
    given = dict(locals())
    given.update(given.pop("newer"))
    return _serve("load", given, newer)


def _serve(call: str, given: dict[str, Any], newer: dict[str, Any]) -> Any:
    """What this process remembers, or what the daemon builds; else what stock torch does."""
    if not newer and (known := _remembered(call, given, remembering.key(call, given))) is not None:
        return _finished(*known)

    def stock() -> Any:
        from warmcc.client.stock import fallback

        bundled.record_stock(given.get("name"))
        function: Callable[..., Any] = load if call == "load" else load_inline
        return fallback.stock(call, args.without_defaults(function, given))

    return or_stock(lambda: _served(call, given, newer), stock)


def or_stock(served: Callable[[], Any], stock: Callable[[], Any]) -> Any:
    """What ``served`` returns; where the daemon does not serve it, what ``stock`` does.
    Stock is called outside of any ``except``, so that its errors carry no confusing history."""
    reason: str | None = None  # what the user should hear
    if is_offline():
        return _without_stock(served)
    try:
        if os.environ.get("WARMCC_DISABLE") != "1":
            return served()
    except args.NotCarried as told:
        _count(f"not carried: {told}")
    except args.LeftToStock:
        pass
    except DaemonError as error:
        if os.environ.get("WARMCC_FALLBACK") == "0":
            raise
        reason = str(error)
    if reason is not None:
        from warmcc.client.stock import fallback

        fallback.say_why(reason)
    with session.stock_builds():
        return stock()


def _without_stock(served: Callable[[], Any]) -> Any:
    """What ``served`` returns, where nothing may be built."""
    try:
        return served()
    except args.NotCarried as told:
        raise OfflineError(f"WARMCC_OFFLINE is set, and no bundle can have this: {told}") from None


def _served(call: str, given: dict[str, Any], newer: dict[str, Any]) -> Any:
    """What the daemon's answer comes to.
    Raises NotCarried, LeftToStock, DaemonError, and whatever stock raises."""
    if newer:
        raise args.NotCarried(f"unknown parameter {next(iter(newer))}")
    return _finished(*answered(call, given))


def answered(call: str, given: dict[str, Any]) -> tuple[Request, Built, str | None]:
    """The request, its answer, and the folder for copies; from memory where that is safe.
    Raises as ``_served``."""
    key = remembering.key(call, given)
    if (known := _remembered(call, given, key)) is not None:
        return known
    request = args.to_request(call, given)
    if remembering.key(call, given) != key:  # another thread changed the environment meanwhile
        key = None
    directory = _directory(request, given)
    size = measure(request)
    args.check(request, given, directory)
    request, answer = _built(request, size, directory)
    if key is not None and (memory := session.memory()) is not None:
        memory.keep(key, request, answer, directory)
    return request, answer, directory


def _remembered(
    call: str, given: dict[str, Any], key: Any
) -> tuple[Request, Built, str | None] | None:
    """What ``answered`` gives, where it is known to be true without asking.
    The variables that turn warmcc off are in the key. Raises what stock raises."""
    memory = session.memory()
    if memory is None or key is None or (known := memory.recall(key)) is None:
        return None
    if call == "load" or known.request.build_directory is not None:
        args.check(known.request, given, None, read=known.answer.files)
    return known.request, known.answer, known.directory


def _built(request: Request, size: int, directory: str | None) -> tuple[Request, Built]:
    """The request with its module's name, and the daemon's answer.
    Raises what a failure comes to."""
    with variants.module_name(request.name, content(request, directory)) as module_name:
        request = msgspec.structs.replace(request, module_name=module_name)
        return request, built(request, size)


def built(request: Request, size: int) -> Built:
    """A bundle's answer, or the daemon's. Raises what a failure comes to."""
    if (found := bundled.answer(request)) is not None:
        return found
    answer = _ask(request, size)
    if isinstance(answer, Declined):
        raise _not_built(request, answer)
    if isinstance(answer, Failed):
        from warmcc.client.connection import exceptions

        raise exceptions.exception(answer)
    bundled.record(request, answer)
    return answer


def _finished(request: Request, answer: Built, directory: str | None) -> Any:
    """Show and load what was built."""
    show(request, answer)
    if not request.is_standalone and "torch" not in sys.modules:
        _import_torch()  # its libraries must be there before the artifact's
    return loader.load(request, answer, directory)


def show(request: Request, answer: Built) -> None:
    """What stock says of what was built: its commands where asked for, and its warnings."""
    if request.verbose:
        show_commands(request.module_name, answer)
    for text in answer.warnings:
        from warmcc.client import notices

        notices.warn_once(text, UserWarning, (request.module_name, text))


def _directory(request: Request, given: dict[str, Any]) -> str | None:
    """The folder for copies, as the caller wrote it.
    It is ``build_directory``, or lies below ``TORCH_EXTENSIONS_DIR``."""
    root = request.environment.get("TORCH_EXTENSIONS_DIR")
    return args.directory_as_given(given) or (
        None if root is None else os.path.join(root, request.name)
    )


def measure(request: Request) -> int:
    """Bytes that the request takes in a message. Raises NotCarried for what no message can say."""
    try:
        return len(encode(Build(0, request))) + len(request.name)  # the module name may grow
    except UnicodeEncodeError:
        raise args.NotCarried("text that is not Unicode") from None


def _not_built(request: Request, answer: Declined) -> Exception:
    if answer.expected:
        return args.LeftToStock()
    return DaemonUnavailable(f"the warmcc daemon could not build {request.name!r}: {answer.reason}")


def _ask(request: Request, size: int) -> Built | Failed | Declined:
    """Ask the daemon, and show what it does meanwhile."""
    try:
        with Display(request) as display:
            return ask.ask(
                request, size, on_progress=display.progress, on_output=display.output,
                meanwhile=None if request.is_standalone else _import_torch,
            )  # fmt: skip
    except ask.TooLarge:
        _count("larger than message_size")
        raise


def _import_torch() -> None:
    import torch  # noqa: F401


def _count(reason: str) -> None:
    """Have the stock path counted, if a daemon runs."""
    try:
        session.current(autostart=False).tell(Fallback(reason))
    except DaemonError:
        session.forget()
