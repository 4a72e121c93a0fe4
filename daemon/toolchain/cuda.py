"""Find the CUDA compiler that a caller's torch would call, and say which one exactly it is."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from warmcc import digest

PROGRAMS = ("nvcc", "cudafe++", "ptxas", "fatbinary", "nvlink", "nvcc.profile")  # beside nvcc
# Which GPUs there are decides for which architectures torch builds
_DRIVER = Path("/proc/driver/nvidia")

Ask = Callable[..., str]


@dataclass(frozen=True)
class Cuda:
    """One identified CUDA toolkit.

    digest   of the programs' content
    nvcc     as stock calls it; ``home`` is CUDA_HOME as stock finds it
    top      the toolkit's folder; ``version`` is what nvcc calls itself
    variables  what nvcc sets for the programs that it runs, as ``nvcc --dryrun`` shows it
    include_folders  what nvcc adds to the search for headers: in front of all others, and behind
                     the caller's
    """

    digest: str
    nvcc: str
    home: str
    top: str
    version: str
    variables: dict[str, str]
    include_folders: tuple[list[str], list[str]]


def home(environment: dict[str, str]) -> str | None:
    """Where torch takes CUDA_HOME from; None when there is no CUDA."""
    if (named := environment.get("CUDA_HOME") or environment.get("CUDA_PATH")) is not None:
        return named
    if (nvcc := shutil.which("nvcc", path=environment.get("PATH", os.defpath))) is not None:
        return os.path.dirname(os.path.dirname(nvcc))
    return "/usr/local/cuda" if os.path.exists("/usr/local/cuda") else None


def nvcc(environment: dict[str, str]) -> str | None:
    """The nvcc that stock would call; None when there is none."""
    found = home(environment)
    path = environment.get("PYTORCH_NVCC") or (os.path.join(found, "bin", "nvcc") if found else "")
    return path if os.path.isabs(path) and os.access(path, os.X_OK) else None


def variables(dryrun: str) -> dict[str, str]:
    """The variables that ``nvcc --dryrun`` says it sets."""
    return dict(re.findall(r"^#\$ (\w+)=(.*?) *$", dryrun, re.M))


def files(nvcc: str, found: dict[str, str]) -> list[str]:
    """The programs and data behind nvcc, that exist."""
    top = found.get("TOP", "")
    candidates = [nvcc, *(os.path.join(top, "bin", name) for name in PROGRAMS)]
    candidates.append(os.path.join(found.get("CICC_PATH", ""), "cicc"))
    library = Path(found.get("NVVMIR_LIBRARY_DIR", "/nonexistent"))
    candidates += sorted(str(path) for path in library.glob("*.bc"))
    real = [path for name in candidates for path in (name, os.path.realpath(name))]
    return list(dict.fromkeys(path for path in real if os.path.isfile(path)))


def identify(
    nvcc: str, environment: dict[str, str], host: list[str], ask: Ask
) -> tuple[Cuda, list[str]]:
    """The toolkit behind an nvcc, and the files that it was identified by.

    ``host`` are the programs of the C++ compiler that nvcc calls, ``ask`` runs a command and gives
    what it prints.
    """
    with tempfile.TemporaryDirectory(
        prefix="warmcc-nvcc-"
    ) as folder:  # it makes files there, and runs nothing
        words = ("--dryrun", "-x", "cu", "-c", "/dev/null", "-o", "/dev/null")
        said = ask([nvcc], environment, *words, folder=folder)
    found = variables(said)
    programs = files(nvcc, found)
    version = ask([nvcc], environment, "--version").strip().split("\n")[-1]
    identity = {
        "version": version,
        "programs": [[os.path.basename(path), digest.of_file(path)] for path in (*programs, *host)],
        "called": [nvcc, home(environment)],
        "gpus": gpus(),
    }
    toolkit = Cuda(
        digest=digest.of_value(identity),
        nvcc=nvcc,
        home=home(environment) or os.path.dirname(os.path.dirname(nvcc)),
        top=os.path.realpath(found.get("TOP", os.path.dirname(os.path.dirname(nvcc)))),
        version=version,
        variables=found,
        include_folders=(
            _folders(found.get("INCLUDES", "")),
            _folders(found.get("SYSTEM_INCLUDES", "")),
        ),
    )
    return toolkit, [*programs, *host]


def _folders(text: str) -> list[str]:
    words = re.findall(r'"([^"]*)"', text)
    return [word.removeprefix("-I") for word in words if word not in ("-isystem", "-I")]


def gpus() -> list[str]:
    """The models of the GPUs, without touching them."""
    try:
        found = [path.read_text() for path in sorted(_DRIVER.glob("gpus/*/information"))]
    except OSError:
        return []
    return [match[1] for text in found if (match := re.search(r"^Model:\s*(.*)$", text, re.M))]
