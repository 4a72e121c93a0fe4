"""What torch's ``_write_ninja_file_and_build_library`` does, by the daemon: packages with a
``_jit_compile`` of their own (slangtorch) call it. It builds under exactly the name that it is
given, and loads nothing.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Mapping
from typing import Any

from warmcc.client.calls import api
from warmcc.client.calls import arguments as args
from warmcc.client.loading import loader
from warmcc.protocol import Built

_PARAMETERS = (
    "name", "sources", "extra_cflags", "extra_cuda_cflags", "extra_sycl_cflags", "extra_ldflags",
    "extra_include_paths", "build_directory", "verbose", "with_cuda", "with_sycl", "is_standalone",
)  # fmt: skip


def build(given: Mapping[str, Any]) -> None:
    """Build what torch's function was ``given`` to build, into its ``build_directory``.

    Raises CompileError; NotCarried, DaemonError or LeftToStock where torch has to do it; OSError;
    RequestError for a name that no file can have.
    """
    if unknown := sorted(set(given) - set(_PARAMETERS)):
        raise args.NotCarried(f"unknown parameter {unknown[0]}")
    standalone = bool(given.get("is_standalone"))
    whole = args.complete("load", {**given, "is_python_module": not standalone})
    request = args.to_request("load", whole)
    if request.build_directory is None:
        raise args.NotCarried("no build_directory")
    if missing := [path for path in request.sources if not os.path.isfile(path)]:
        raise args.NotCarried(f"a source that is not there: {missing[0]}")
    answer = api.built(request, api.measure(request))
    api.show(request, answer)
    _place(answer, request.build_directory, request.sources)


def _place(built: Built, folder: str, sources: list[str]) -> None:
    """Put a copy of the result into the folder, newer than its sources as the linker's would be.

    No ``build.ninja`` is put there: packages run ninja in the folder to see whether anything is
    out of date, and without objects it would compile everything, by the plain compilers.
    """
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, os.path.basename(built.path))
    try:
        newest = max(os.stat(source).st_mtime_ns for source in sources)
        is_current = os.stat(path).st_mtime_ns >= newest and filecmp.cmp(
            path, built.path, shallow=False
        )
    except OSError:
        is_current = False
    if not is_current:
        loader.put(built.path, path, 0o777)
