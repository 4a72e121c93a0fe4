"""From the arguments of ``warmcc.kernel`` and ``warmcc.cfunctions`` to what is compiled."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any

from warmcc import nvrtc
from warmcc.client.calls import arguments
from warmcc.client.kernel import c_types
from warmcc.errors import RequestError, WarmccError
from warmcc.request import Compiler, Interpreter, KernelRequest

_ARCHITECTURE = re.compile(r"(?:sm|compute)_\d{2,3}[af]?")
_UNSAFE = re.compile(r"[^\w.-]+")
# The caller's own words for what warmcc decides, by what to say in their place.
_REFUSED = {
    "-o": "the result is kept by warmcc", "-c": "the result is kept by warmcc",
    "-arch": "pass arch=", "--gpu-architecture": "pass arch=", "-gencode": "pass arch=",
    "-rdc": "kernels are not linked", "--relocatable-device-code": "kernels are not linked",
    "-dlto": "kernels are not linked", "--dlto": "kernels are not linked",
    "-dc": "kernels are not linked", "--device-c": "kernels are not linked",
}  # fmt: skip


def architecture() -> str:
    """That of the current GPU, with the features of it alone (``sm_90a``) where it has some.
    Raises WarmccError where there is none."""
    import torch

    if not torch.cuda.is_available():
        raise WarmccError(
            "there is no GPU that torch can use; to compile without one, name an architecture: "
            'compile("sm_90")'
        )
    major, minor = torch.cuda.get_device_capability()
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def text(value: Any) -> tuple[str, str | None]:
    """A source's text, and its path if a path was given. Raises OSError, TypeError."""
    if isinstance(value, os.PathLike):
        path = os.path.abspath(os.fspath(value))
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(), path
    if not isinstance(value, str):
        raise TypeError(
            f"source must be the text of the code, or a pathlib.Path, not {type(value).__name__}"
        )
    return value, None


def literal(value: Any) -> str:
    """A Python value as C++ has it: True is ``true``, torch.float32 is ``float``.
    Raises TypeError."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (int, str)):
        return str(value)
    if isinstance(value, float):
        return repr(value)
    found = c_types.OF_DTYPES.get(str(value))
    if found is None:
        raise TypeError(f"not a constant, nor a type: {value!r}")
    return found


def defines(constants: Mapping[str, Any]) -> list[str]:
    """Constants as options. Raises TypeError."""
    for name in constants:
        if not str(name).isidentifier():
            raise TypeError(f"not the name of a constant: {name!r}")
    return [f"-D{name}={literal(value)}" for name, value in constants.items()]


def _folders(options: Iterable[str], include_dirs: Iterable[Any]) -> tuple[list[str], list[str]]:
    """Options without folders of headers, and these folders, absolute.
    Raises RequestError, TypeError."""
    if isinstance(options, str) or isinstance(include_dirs, str):
        raise TypeError("options and include_dirs are lists of strings")
    words, kept = list(options), list[str]()
    folders = [os.path.abspath(os.fspath(folder)) for folder in include_dirs]
    while words:
        word = words.pop(0)
        if not isinstance(word, str):
            raise TypeError(f"an option is a string, not {word!r}")
        reason = _REFUSED.get(word.partition("=")[0])
        if reason is not None:
            raise RequestError(f"the option {word!r} cannot be used here: {reason}")
        for start in ("--include-path=", "-isystem=", "-I"):
            if word.startswith(start) and word != start:
                folders.append(os.path.abspath(word[len(start) :]))
                break
        else:
            if word in ("-I", "-isystem", "--include-path") and words:
                folders.append(os.path.abspath(words.pop(0)))
            else:
                kept.append(word)
    return kept, folders


def _interpreter() -> Interpreter:
    """The running Python and its torch. Raises WarmccError."""
    try:
        return arguments.interpreter()
    except arguments.NotCarried as error:
        raise WarmccError(f"torch is not installed for this Python: {error}") from None


def request(
    source: str, path: str | None, name: str, compiler: Compiler, *, options: Iterable[str],
    include_dirs: Iterable[Any], names: list[str], arch: str = "",
) -> KernelRequest:  # fmt: skip
    """What is sent. Raises RequestError, TypeError, WarmccError."""
    kept, folders = _folders(options, include_dirs)
    environment, interpreter = arguments.environment(), _interpreter()
    library, system = "", list[str]()
    if arch and not _ARCHITECTURE.fullmatch(arch):
        raise RequestError(f"arch is like 'sm_90a' or 'compute_90', not {arch!r}")
    if compiler == "nvrtc":
        library = nvrtc.library(interpreter.torch_dir, environment) or ""
        if not library:
            raise WarmccError(
                "libnvrtc was not found, neither beside torch nor in CUDA_HOME; install torch for "
                'CUDA, or the CUDA toolkit, or pass compiler="nvcc"'
            )
        system = nvrtc.toolkit_folders(library, environment)
    if compiler in ("nvrtc", "nvcc") and re.search(r"\b(?:cute|cutlass)/", source):
        folders += _cutlass(interpreter.torch_dir)
    usual = {"cc": "functions.c", "c++": "functions.cpp"}.get(compiler, "kernel.cu")
    return KernelRequest(
        name=_UNSAFE.sub("_", name)[:200] or "kernel", compiler=compiler, source=source,
        file=path or usual, folder=None if path is None else os.path.dirname(path), options=kept,
        include_dirs=folders, system_dirs=system, names=names, arch=arch, library=library,
        interpreter=interpreter, environment=environment,
    )  # fmt: skip


def _cutlass(torch_dir: str) -> list[str]:
    """Where CUTLASS's headers are: CUTLASS_PATH, or a package that brings them."""
    packages = os.path.dirname(torch_dir)
    places = [
        *(f"{os.environ[name]}/include" for name in ("CUTLASS_PATH", "CUTLASS_HOME")
          if os.environ.get(name)),
        *glob.glob(f"{packages}/cutlass_library/source/include"),
        *glob.glob(f"{packages}/*/data/cutlass/include"),
    ]  # fmt: skip
    return [os.path.abspath(place) for place in places if os.path.isdir(place)][:1]
