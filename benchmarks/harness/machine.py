"""What the figures were taken on. A figure without this is worth nothing on another machine."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from pathlib import Path
from typing import Any

from warmcc import __version__

ROOT = Path(__file__).resolve().parents[2]


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return re.sub(r"\((?:R|TM)\)", "", line.partition(":")[2]).strip()
    return platform.machine()


def cores() -> int:
    """The processors that this process may use."""
    return len(os.sched_getaffinity(0))


def _first_line(*command: str) -> str:
    try:
        found = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        )
    except OSError:
        return ""
    return (found.stdout.splitlines() or [""])[0]


def facts() -> dict[str, Any]:
    """Processor, memory, versions, time and load of this machine, as plain values."""
    memory = re.search(r"MemTotal:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    return {
        "class": machine_class(),
        "cpu": cpu(),
        "cores": cores(),
        "memory_gib": round(int(memory[1]) / 2**20) if memory else 0,
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
        "compiler": _first_line(os.environ.get("CXX", "c++"), "--version"),
        "warmcc": __version__,
        "commit": _first_line("git", "-C", str(ROOT), "describe", "--always", "--dirty"),
        "taken": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load": round(os.getloadavg()[0], 1),
    }


def machine_class() -> str:
    """A name for machines like this one that may be a file's: ``2-core-amd-epyc``."""
    words = re.findall(r"[a-z][a-z0-9-]*", cpu().lower())
    kept = [word for word in words if word not in ("core", "processor", "cpu", "with", "virtual")]
    return "-".join([f"{cores()}-core", *kept[:2]])


def is_busy() -> bool:
    """Whether others work on this machine so much that figures will not repeat."""
    return os.getloadavg()[0] > 0.5 * cores()


def describe(found: dict[str, Any]) -> str:
    """The facts in one line, for below a table."""
    return (
        f"{found['cpu']}, {found['cores']} cores, {found['memory_gib']} GiB; torch "
        f"{found['torch']}, "
        f"Python {found['python']}, {found['compiler']}; warmcc {found['warmcc']}, "
        f"{found['taken'][:10]}"
    )
