"""The objects of a setup.py: what torch's ``BuildExtension`` compiles, by the daemon.

Each source is a request by itself. setuptools links the objects, as it does without warmcc.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from typing import Any

from warmcc.client.calls import alike, compilers
from warmcc.client.calls import arguments as args
from warmcc.client.calls.names import Names, without_missing
from warmcc.client.calls.progress import write
from warmcc.client.connection import ask, exceptions
from warmcc.client.connection.wire import Interrupted
from warmcc.client.loading import loader
from warmcc.errors import DaemonUnavailable
from warmcc.protocol import Build, Built, Declined, Failed, encode
from warmcc.request import Interpreter, Request

_AT_ONCE = 64  # requests that wait for the daemon, which decides how many compilers run
_FOR_OTHERS = ("with_sycl", "cuda_dlink_post_cflags")
_SOURCES = {"nvcc": (".cu",), "c++": (".cpp", ".cc", ".cxx")}
_COMPILER = re.compile(r"(?:.*/)?(?:[\w.-]+-)?(?:gcc|g\+\+|cc|c\+\+|nvcc)(?:-[\d.]+)?")
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
            work = _Work(
                len(requests), reading, verbose=given["verbose"],
                as_written=Names("", [], _folder(given), is_cuda=True).as_written,
            )  # fmt: skip
            sources = alike.to_compile(given)
            futures = [
                threads.submit(work.compile, path, request, sources)
                for path, request in requests.items()
            ]
            try:
                _wait(futures)
            finally:
                os.write(writing, b"x")  # wakes those that still wait, in vain now
                threads.shutdown(wait=True, cancel_futures=True)
    finally:
        os.close(reading)
        os.close(writing)


def compile_command(words: list[str], module: Any) -> None:
    """Do what a command of setuptools does that compiles one source (see ``is_compile``), and print
    the command. Raises as ``compile_objects``."""
    at = words.index("-c")
    (program, *flags), source, path = words[:at], words[at + 1], words[at + 3]
    variables = environment(module.CUDA_HOME)
    is_cuda = os.path.basename(program) == "nvcc"
    if not is_cuda:
        variables["CXX"] = compilers.for_cpp(program, variables.get("CXX", "c++"))
    elif program != os.path.join(module.CUDA_HOME or "", "bin", "nvcc"):
        variables["PYTORCH_NVCC"] = program
    flags += words[at + 4 :]
    if is_cuda:
        flags, host = compilers.split_host(flags)
        variables = compilers.with_host(variables, host)
    names = Names(source, flags, os.getcwd(), is_cuda=is_cuda)
    quoted = [shlex.quote(word).replace("$", "$$") for word in names.flags]
    asked = request(
        names.source, path, quoted, os.getcwd(), variables, args.interpreter(),
        is_cuda=is_cuda, verbose=True,
    )  # fmt: skip
    _Work(1, None, verbose=True, as_written=names.as_written).compile(
        path, asked, alike.with_flags_of([os.path.normpath(names.source)])
    )


def is_compile(words: Sequence[Any]) -> bool:
    """Whether a command compiles one C++ or CUDA source to an object, as setuptools writes it.

    >>> is_compile(["g++", "-O2", "-c", "a.cpp", "-o", "a.o", "-g"])
    True
    >>> is_compile(["gcc", "-c", "a.c", "-o", "a.o"]), is_compile(["g++", "a.o", "-o", "a.so"])
    (False, False)
    """
    if not all(type(word) is str for word in words) or list(words).count("-c") != 1:
        return False
    at = list(words).index("-c")
    if at < 1 or len(words) < at + 4 or words[at + 2] != "-o":
        return False
    suffixes = _SOURCES.get(os.path.basename(words[0]), _SOURCES["c++"])
    return _COMPILER.fullmatch(words[0]) is not None and words[at + 1].endswith(suffixes)


def _wait(futures: list[Future[None]]) -> None:
    for future in as_completed(futures):
        future.result()


class _Work:
    """What the requests of one call share. ``as_written`` has what is said name files as the
    caller does."""

    def __init__(
        self, total: int, interrupt: int | None, *, verbose: bool,
        as_written: Callable[[str], str] = str,
    ) -> None:  # fmt: skip
        self._total = total
        self._as_written = as_written
        self._interrupt = interrupt
        self._verbose = verbose
        self._done = 0
        self._lock = threading.Lock()

    def compile(self, path: str, request: Request, sources: Sequence[str]) -> None:
        """Have an object made, and put it at ``path``; ``sources`` are in C++, to be compiled with
        the same flags if its own is among them."""
        is_one = os.path.normpath(request.sources[0]) in sources
        others = list(sources) if is_one else []
        said: list[str] = []
        try:
            size = len(encode(Build(0, request, alike=others)))
            answer = ask.ask(
                request, size, on_output=said.append, interrupt=self._interrupt, alike=others
            )
        except UnicodeEncodeError:
            raise args.NotCarried("text that is not Unicode") from None
        except Interrupted:
            return
        if isinstance(answer, Failed):
            answer.message = self._as_written(answer.message)
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
                said = "".join(f"{mark}[reused] {command}\n" for command in answer.commands)
            else:
                said = _MARK.sub(mark, said)
            write(self._as_written(said))


def _requests(given: Mapping[str, Any], module: Any) -> Iterator[Request]:
    """One for each source, in their order. Raises NotCarried."""
    if getattr(module, "IS_HIP_EXTENSION", False):
        raise args.NotCarried("objects for ROCm")
    if name := next((name for name in _FOR_OTHERS if given.get(name)), None):
        raise args.NotCarried(f"objects with {name}")
    variables, interpreter = environment(module.CUDA_HOME), args.interpreter()
    for source, path in zip(given["sources"], given["objects"], strict=True):
        is_cuda = source.endswith((".cu", ".cuh"))
        if is_cuda and given["with_cuda"] is False:
            raise args.NotCarried("a CUDA source without CUDA")
        kind = "cuda_" if is_cuda else ""
        words = [*(given[f"{kind}cflags"] or []), *(given[f"{kind}post_cflags"] or [])]
        flags = [flag for word in words if (flag := word.strip()) != "-c"]  # setuptools says it too
        flags, asked = without_missing(flags, _folder(given)), variables
        if is_cuda:
            flags, host = compilers.split_host(flags)
            asked = compilers.with_host(variables, host)
            with contextlib.suppress(args.NotCarried):  # nvcc's front ends are not warm for it then
                flags = Names("", flags, _folder(given), is_cuda=True).flags
        yield request(
            os.path.abspath(source), path, flags, _folder(given), asked, interpreter,
            is_cuda=is_cuda, verbose=given["verbose"],
        )  # fmt: skip


def _folder(given: Mapping[str, Any]) -> str:
    """Where ninja runs."""
    folder: str = os.path.abspath(given["build_directory"])
    return folder


def request(
    source: str, path: str, flags: list[str], folder: str, environment: dict[str, str],
    interpreter: Interpreter, *, is_cuda: bool, verbose: bool,
) -> Request:  # fmt: skip
    """One source, by its absolute name, to one object, by the words of ``flags`` as a build.ninja
    has them, in ``folder``."""
    if is_cuda and (host := environment.get("CC")):
        flags = ["-ccbin", host, *flags]  # an older daemon leaves that to nvcc
    name = re.sub(r"[^\w.+-]", "_", os.path.basename(path)).lstrip(".+-")[-args.NAME_LIMIT :]
    return Request(
        call="compile", name=name, module_name=name, interpreter=interpreter,
        environment=environment, sources=[source],
        build_directory=os.path.abspath(folder), is_python_module=False, verbose=bool(verbose),
        extra_cflags=[] if is_cuda else flags, extra_cuda_cflags=flags if is_cuda else [],
    )  # fmt: skip


def environment(cuda_home: str | None) -> dict[str, str]:
    """That of this process, with the CUDA that torch found when it was imported."""
    found = args.environment()
    usual = found.get("CUDA_HOME") or found.get("CUDA_PATH")
    if usual is None and (nvcc := shutil.which("nvcc")) is not None:
        usual = os.path.dirname(os.path.dirname(nvcc))
    if cuda_home is not None and cuda_home != (usual or "/usr/local/cuda"):
        found["CUDA_HOME"] = cuda_home
    return found
