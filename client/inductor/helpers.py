"""The small C modules that Triton compiles for itself: one for the driver, and launchers.

Torch's cache artifacts lack them, and Triton's own cache is empty on another machine. In a recorded
process they are kept for the bundle; where a bundle has them, no compiler is needed.
"""

from __future__ import annotations

import functools
import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

from warmcc.client.calls import arguments as args
from warmcc.client.calls import bundled
from warmcc.client.inductor import packed, way_back
from warmcc.protocol import Built
from warmcc.request import Request


def from_bundles(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of the function that runs the C compiler, where Triton's cache has
    nothing. It raises OfflineError where nothing is compiled, and no bundle has the module."""

    @functools.wraps(original)
    def _build(name: str, src: str, srcdir: str, *more: Any, **named: Any) -> Any:
        if way_back.is_off() or not (bundled.are_there() or bundled.is_recorded()):
            return original(name, src, srcdir, *more, **named)
        try:
            request = _request(name, Path(src).read_text(encoding="utf-8"))
        except (args.NotCarried, OSError, UnicodeError):
            return original(name, src, srcdir, *more, **named)
        found = packed.answer(request)
        if found is not None:
            target = os.path.join(srcdir, f"{name}{sysconfig.get_config_var('EXT_SUFFIX')}")
            return shutil.copyfile(found.path, target)
        path = original(name, src, srcdir, *more, **named)
        packed.record(request, Built(0, path, "miss", 0.0, kept=True))
        return path

    return _build


def _request(name: str, text: str) -> Request:
    """A module by its text: Triton has no other options of its own but folders."""
    return Request(
        call="compile", name=name, module_name=name, interpreter=args.interpreter(),
        environment={}, cpp_sources=[text], is_python_module=False,
    )  # fmt: skip
