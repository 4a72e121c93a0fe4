"""What Triton has compiled, in bundles: torch's cache artifacts do not have all of it.

Torch saves a graph before its kernels are tuned on the device, and does not know those that a
script has written for Triton itself. So a bundle has the groups of files that Triton's cache had
at the end of the recorded command, and Triton gets those that its cache lacks here.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from warmcc.client.calls import bundled
from warmcc.client.inductor import way_back
from warmcc.client.notices import warn_once
from warmcc.errors import WarmccError, WarmccWarning


def from_bundles(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of the function that gets a group from Triton's cache: one that is
    in a bundle only is put there."""

    @functools.wraps(original)
    def get_group(self: Any, filename: str) -> Any:
        found = original(self, filename)
        if found is not None or self.lock_path is None or _is_idle():
            return found
        files = _unpacked().get(self.key, {}).get(filename)
        if files is None:
            return None
        with contextlib.suppress(OSError):  # Triton meets it, too, when it has compiled
            self.put_group(filename, {name: self.put(data, name) for name, data in files.items()})
        return original(self, filename)

    return get_group


def _is_idle() -> bool:
    return way_back.is_off() or bundled.is_recorded() or not bundled.are_there()


@functools.cache
def _unpacked() -> dict[str, dict[str, dict[str, bytes]]]:
    """The groups of all bundles for this machine."""
    from warmcc.client.bundles import finding, layout, triton_groups

    found: triton_groups.Groups = {}
    try:
        for path in finding.data(layout.TRITON):
            found |= triton_groups.read(path)
    except (WarmccError, msgspec.MsgspecError, OSError) as error:
        warn_once(f"what Triton had compiled is not loaded: {error}", WarmccWarning)
    return found


def of_this_machine(original: Callable[..., Any]) -> Callable[..., Any]:
    """What stands in the place of the function that finds how a kernel was tuned, which is written
    beside the kernel's source: in a packed graph, the source's folder is the recording machine's.
    """

    @functools.wraps(original)
    def check_autotune_cache(configs: Any, filename: str | None, inductor_meta: Any) -> Any:
        if filename is not None and not _is_idle() and not os.path.exists(filename):
            folder = importlib.import_module("torch._inductor.codecache").cache_dir()
            filename = os.path.join(folder, *Path(filename).parts[-2:])
        return original(configs, filename, inductor_meta)

    return check_autotune_cache
