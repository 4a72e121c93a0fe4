"""The objects of a setup.py: what torch's ``BuildExtension`` compiles, by the daemon.

Each source is a request by itself. setuptools links the objects, as it does without warmcc.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from warmcc.client.calls import arguments as args
from warmcc.client.calls.progress import write
from warmcc.client.connection import ask, exceptions
from warmcc.client.connection.wire import Interrupted
from warmcc.client.loading import loader
from warmcc.errors import DaemonUnavailable
from warmcc.protocol import Build, Built, Declined, Failed, encode
from warmcc.request import Request

_AT_ONCE = 64  # requests that wait for the daemon, which decides how many compilers run
_FOR_OTHERS = ("with_sycl", "cuda_dlink_post_cflags")
_MARK = re.compile(r"^\[\d+/\d+\] ", re.M)


def compile_objects(given: Mapping[str, Any], module: Any) -> None:
    """Compile what ``_write_ninja_file_and_compile_objects`` of ``module``, which is
    ``torch.utils.cpp_extension``, was given to compile, and put the objects where it would.

    Raises CompileError; NotCarried, DaemonError or LeftToStock where torch has to do it.
    """
    requests = dict(zip(map(os.fspath, given["objects"]), _requests(given, module), strict=True))
    jobs = os.environ.get("MAX_JOBS", "")
    at_once = min(len(requests), int(jobs) if jobs.isdecimal() and int(jobs) else _AT_ONCE)
    reading, writing = os.pipe()
    try:
        with ThreadPoolExecutor(max(at_once, 1), thread_name_prefix="warmcc-object") as threads:
            work = _Work(len(requests), reading, given["verbose"])
            futures = [
                threads.submit(work.compile, path, request) for path, request in requests.items()
            ]
            try:
                _wait(futures)
            finally:
                os.write(writing, b"x")  # wakes those that still wait, in vain now
                threads.shutdown(wait=True, cancel_futures=True)
    finally:
        os.close(reading)
        os.close(writing)


def _wait(futures: list[Future[None]]) -> None:
    for future in as_completed(futures):
        future.result()


class _Work:
    """What the requests of one call share."""

    def __init__(self, total: int, interrupt: int, verbose: bool) -> None:
        self._total = total
        self._interrupt = interrupt
        self._verbose = verbose
        self._done = 0
        self._lock = threading.Lock()

    def compile(self, path: str, request: Request) -> None:
        """Have an object made, and put it at ``path``."""
        said: list[str] = []
        try:
            size = len(encode(Build(0, request)))
            answer = ask.ask(request, size, on_output=said.append, interrupt=self._interrupt)
        except UnicodeEncodeError:
            raise args.NotCarried("text that is not Unicode") from None
        except Interrupted:
            return
        if isinstance(answer, Failed):
            raise exceptions.exception(answer)
        if isinstance(answer, Declined):
            if answer.expected:
                raise args.LeftToStock(answer.reason)
            raise DaemonUnavailable(f"the warmcc daemon could not build {path}: {answer.reason}")
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        loader.put(answer.path, path)
        self._tell(answer, "".join(said))

    def _tell(self, answer: Built, said: str) -> None:
        with self._lock:
            self._done += 1
            if not self._verbose:
                return
            mark = f"[{self._done}/{self._total}] "
            if answer.outcome == "hit":
                write("".join(f"{mark}[reused] {command}\n" for command in answer.commands))
            else:
                write(_MARK.sub(mark, said))


def _requests(given: Mapping[str, Any], module: Any) -> Iterator[Request]:
    """One for each source, in their order. Raises NotCarried."""
    if getattr(module, "IS_HIP_EXTENSION", False):
        raise args.NotCarried("objects for ROCm")
    if name := next((name for name in _FOR_OTHERS if given.get(name)), None):
        raise args.NotCarried(f"objects with {name}")
    environment = args.environment()
    if home := module.CUDA_HOME:
        environment["CUDA_HOME"] = home  # what torch found when it was imported
    interpreter = args.interpreter()
    for source, path in zip(given["sources"], given["objects"], strict=True):
        is_cuda = source.endswith((".cu", ".cuh"))
        if is_cuda and given["with_cuda"] is False:
            raise args.NotCarried("a CUDA source without CUDA")
        kind = "cuda_" if is_cuda else ""
        words = [*(given[f"{kind}cflags"] or []), *(given[f"{kind}post_cflags"] or [])]
        flags = [flag for word in words if (flag := word.strip()) != "-c"]  # setuptools says it too
        name = re.sub(r"[^\w.+-]", "_", os.path.basename(path)).lstrip(".+-")[-args.NAME_LIMIT :]
        yield Request(
            call="compile", name=name, module_name=name, interpreter=interpreter,
            environment=environment, sources=[os.path.abspath(source)],
            build_directory=os.path.abspath(given["build_directory"]), is_python_module=False,
            verbose=bool(given["verbose"]),
            extra_cflags=[] if is_cuda else flags, extra_cuda_cflags=flags if is_cuda else [],
        )  # fmt: skip
