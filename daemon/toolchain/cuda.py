"""Find the CUDA compiler that a caller's torch would call, and say which one exactly it is."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from warmcc import digest

_PROGRAMS = ("cudafe++", "cicc", "ptxas", "fatbinary", "nvlink")  # that nvcc runs
# Which GPUs there are decides for which architectures torch builds
_DRIVER = Path("/proc/driver/nvidia")

Ask = Callable[..., str]


@dataclass(frozen=True)
class Cuda:
    """One identified CUDA toolkit.

    digest   of the programs' content, with that of the host's compiler (``with_host``)
    nvcc     as stock calls it; ``home`` is CUDA_HOME as stock finds it
    top      the toolkit's folder; ``version`` is what nvcc calls itself
    variables  what nvcc sets for the programs that it runs, as ``nvcc --dryrun`` shows it
    path     the folders that it puts in front of their PATH
    include_folders  what nvcc adds to the search for headers: in front of all others, and behind
                     the caller's
    """

    digest: str
    nvcc: str
    home: str
    top: str
    version: str
    variables: dict[str, str]
    path: list[str]
    include_folders: tuple[list[str], list[str]]

    @property
    def roots(self) -> list[str]:
        """The folders whose headers are the toolkit's and not the user's."""
        return [self.top, own_folder(self.home), *chain(*self.include_folders)]

    def search_path(self, environment: dict[str, str]) -> str:
        """PATH as the programs see it that nvcc runs."""
        return os.pathsep.join([*self.path, environment.get("PATH", os.defpath)])

    def with_host(self, programs: list[str]) -> Cuda:
        """The same, with these programs of the compiler that it calls for the host."""
        contents = [[os.path.basename(path), digest.of_file(path)] for path in programs]
        return replace(self, digest=digest.of_value([self.digest, contents]))


def own_folder(home: str) -> str:
    """The folder in CUDA_HOME whose headers are all the toolkit's: that itself, but for Debian's
    ``/usr``.

    >>> own_folder("/usr")
    '/usr/include'
    """
    is_toolkit = os.path.isdir(os.path.join(home, "nvvm"))
    return home if is_toolkit else os.path.join(home, "include")


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
    """The programs and data behind nvcc, that exist. Debian's nvcc is a script, and its programs
    lie in several folders."""
    here = _here(nvcc, found)
    candidates = [nvcc, *(os.path.join(here, name) for name in ("nvcc", "nvcc.profile"))]
    programs = (shutil.which(name, path=found.get("PATH", "")) for name in _PROGRAMS)
    candidates += [program for program in programs if program is not None]
    library = Path(found.get("NVVMIR_LIBRARY_DIR", "/nonexistent"))
    candidates += sorted(str(path) for path in library.glob("*.bc"))
    real = [path for name in candidates for path in (name, os.path.realpath(name))]
    return list(dict.fromkeys(path for path in real if os.path.isfile(path)))


def identify(nvcc: str, environment: dict[str, str], ask: Ask) -> tuple[Cuda, list[str]]:
    """The toolkit behind an nvcc, and the files that it was identified by. ``ask`` runs a command
    and gives what it prints."""
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
        "programs": [[os.path.basename(path), digest.of_file(path)] for path in programs],
        "called": [nvcc, home(environment)],
        "gpus": gpus(),
    }
    toolkit = Cuda(
        digest=digest.of_value(identity),
        nvcc=nvcc,
        home=home(environment) or os.path.dirname(os.path.dirname(nvcc)),
        top=os.path.realpath(found.get("TOP") or os.path.dirname(_here(nvcc, found))),
        version=version,
        variables=found,
        path=_added(found.get("PATH", ""), environment.get("PATH", os.defpath)),
        include_folders=(
            _folders(found.get("INCLUDES", "")),
            _folders(found.get("SYSTEM_INCLUDES", "")),
        ),
    )
    return toolkit, programs


def _here(nvcc: str, found: dict[str, str]) -> str:
    """The folder of the program behind nvcc, which itself may be a script."""
    return found.get("_HERE_") or os.path.dirname(nvcc)


def _added(path: str, own: str) -> list[str]:
    """The folders of nvcc's PATH in front of the caller's own.

    >>> _added("/t/bin/../nvvm/bin:/t/bin:/usr/bin:/bin", "/usr/bin:/bin")
    ['/t/nvvm/bin', '/t/bin']
    """
    folders = path.removesuffix(own).split(os.pathsep)
    return list(dict.fromkeys(os.path.realpath(folder) for folder in folders if folder))


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
