"""warmcc: build PyTorch's inline C++ extensions through a persistent, warm compile daemon.

``warmcc.load_inline`` and ``warmcc.load`` take what ``torch.utils.cpp_extension.load_inline`` and
``load`` take; ``warmcc.install`` puts warmcc behind torch's own names; ``warmcc.build_inline`` and
``warmcc.build`` compile without loading; ``warmcc.watch`` and ``warmcc.reloading`` give a module
that follows its source files; ``warmcc.kernel`` and ``warmcc.cfunctions`` compile CUDA kernels and
C functions without torch's headers. Importing this package does not import torch: that waits for
the first call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warmcc.version import __version__

if TYPE_CHECKING:
    from warmcc.client.bundles.packing import pack
    from warmcc.client.bundles.unpacking import Bundle, unpack
    from warmcc.client.calls.api import load, load_inline
    from warmcc.client.calls.artifact import (
        Artifact,
        Kernel,
        build,
        build_async,
        build_inline,
        build_inline_async,
    )
    from warmcc.client.calls.builder import Builder
    from warmcc.client.install.patches import install, uninstall
    from warmcc.client.kernel.c_functions import cfunctions
    from warmcc.client.kernel.kernel import CudaKernel, kernel
    from warmcc.client.live.handle import reloading, watch
    from warmcc.client.run.runner import Finished, Runner
    from warmcc.errors import (
        BundleError,
        CompileError,
        OfflineError,
        WarmccError,
        WarmccWarning,
    )

__all__ = [
    "Artifact", "Builder", "Bundle", "BundleError", "CompileError", "CudaKernel", "Finished",
    "Kernel", "OfflineError", "Runner", "WarmccError", "WarmccWarning", "__version__", "build",
    "build_async", "build_inline", "build_inline_async", "cfunctions", "install", "kernel", "load",
    "load_inline", "pack", "reloading", "uninstall", "unpack", "watch",
]  # fmt: skip

_ARTIFACT = "warmcc.client.calls.artifact"
_RUNNER = "warmcc.client.run.runner"
_HOMES = {
    "Artifact": _ARTIFACT, "Kernel": _ARTIFACT, "build": _ARTIFACT, "build_async": _ARTIFACT,
    "build_inline": _ARTIFACT, "build_inline_async": _ARTIFACT,
    "Builder": "warmcc.client.calls.builder",
    "cfunctions": "warmcc.client.kernel.c_functions",
    "CudaKernel": "warmcc.client.kernel.kernel", "kernel": "warmcc.client.kernel.kernel",
    "install": "warmcc.client.install.patches", "uninstall": "warmcc.client.install.patches",
    "load": "warmcc.client.calls.api", "load_inline": "warmcc.client.calls.api",
    "load_ipython_extension": "warmcc.client.integrations.notebook",
    "reloading": "warmcc.client.live.handle", "watch": "warmcc.client.live.handle",
    "Finished": _RUNNER, "Runner": _RUNNER,
    "Bundle": "warmcc.client.bundles.unpacking", "unpack": "warmcc.client.bundles.unpacking",
    "pack": "warmcc.client.bundles.packing", "BundleError": "warmcc.errors",
    "OfflineError": "warmcc.errors", "CompileError": "warmcc.errors",
    "WarmccError": "warmcc.errors", "WarmccWarning": "warmcc.errors",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'warmcc' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
