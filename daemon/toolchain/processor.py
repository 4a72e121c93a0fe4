"""Which processor this is: what a compiler told to build for it (``-march=native``) depends on."""

from __future__ import annotations

import functools
from pathlib import Path

from warmcc import digest

# What differs between the cores of one processor, and from moment to moment.
_VARIES = {
    "processor", "cpu MHz", "bogomips", "BogoMIPS", "apicid", "initial apicid", "core id",
    "cpu cores", "siblings", "physical id", "microcode",
}  # fmt: skip


@functools.lru_cache(1)
def identity() -> str:
    """A digest of the first processor's model and abilities; empty where the kernel has none."""
    try:
        first = Path("/proc/cpuinfo").read_text(errors="replace").split("\n\n", 1)[0]
    except OSError:
        return ""
    pairs = (line.partition(":")[::2] for line in first.split("\n"))
    return digest.of_value(
        sorted(
            (name.strip(), value.strip()) for name, value in pairs if name.strip() not in _VARIES
        )
    )
