"""The key of a request in a remote store: the same on machines that would build the same.

It is made of the contents of the request's sources, and of the daemon's own request key, which has
paths, flags, variables, the contents of the compilers' programs and of torch's libraries, for
``-march=native`` the processor, and for CUDA the models of the GPUs. Headers and libraries are
compared when a result is taken. Paths count, since a result has them in it (``__FILE__``, messages
of torch's checks): a folder of the user's at another place makes another request.
"""

from __future__ import annotations

from pathlib import Path

from warmcc import digest
from warmcc.daemon.plan import requested
from warmcc.daemon.toolchain.cuda import gpus
from warmcc.request import Request

_FORMAT = 1
_DEVICES = Path("/dev")


def key_of(request: Request, key: str, contents: dict[str, str]) -> str | None:
    """The key in a remote store of a request with this ``key`` in the daemon's, and sources with
    these ``contents`` (digests by path). None where the result depends on more of this machine than
    the key can tell."""
    if any(path not in contents for path in request.sources) or request.sycl_sources:
        return None
    if requested.keyed_environment(request).get(requested.PROCESSOR) == "":
        return None  # -march=native, on a processor that the kernel does not describe
    if requested.with_cuda(request) and _has_unknown_gpus():
        return None
    return digest.of_value([_FORMAT, key, [contents[path] for path in request.sources]])


def _has_unknown_gpus() -> bool:
    """Whether torch may find GPUs, and build for them, whose models the toolkit's identity lacks
    (``toolchain/cuda.py``), as in WSL."""
    devices = [*_DEVICES.glob("nvidia[0-9]*"), *_DEVICES.glob("dxg")]
    return bool(devices) and not gpus()
