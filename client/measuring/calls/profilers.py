"""The calls of one function under Nsight Systems or perf."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from typing import Any

from warmcc.errors import RequestError

CHILD = [sys.executable, "-m", "warmcc.client.measuring.calls.child"]
SECONDS = 3.0  # for which perf looks at the calls
_RATE = 499  # samples per second; each holds a copy of the stack
_ADDRESS = re.compile(r"\+0x[0-9a-f]+$")
_PATIENCE = 1800.0  # empty functions may have to be built, on a busy machine


def run(command: list[str], given: dict[str, Any]) -> dict[str, Any]:
    """Run a command that ends in ``CHILD``; gives what that told. Raises RequestError."""
    try:
        done = subprocess.run(
            command, input=json.dumps(given), stdout=subprocess.PIPE, text=True, check=False,
            timeout=_PATIENCE,
        )  # fmt: skip
    except OSError as error:
        raise RequestError(f"{command[0]} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise RequestError(f"the measurement took more than {_PATIENCE:.0f} s") from None
    # A profiler writes its own lines beside
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        code = done.returncode
        how = f"by signal {-code}" if code < 0 else f"with code {code}"
        what = "the process that called it" if command == CHILD else os.path.basename(command[0])
        raise RequestError(f"{given['target']}: {what} was ended {how}")
    told: dict[str, Any] = json.loads(lines[-1])
    if "error" in told:
        raise RequestError(told["error"])
    return told


def nsys(path: str, given: dict[str, Any]) -> dict[str, Any]:
    """Measure all rows under Nsight Systems, each in an NVTX range, and write its report.
    Raises RequestError."""
    found = _tool("nsys", "Nsight Systems")
    command = [found, "profile", "--trace=cuda,nvtx,osrt", "--force-overwrite=true", "-o", path]
    return run([*command, *CHILD], given)


def perf(given: dict[str, Any], limit: int = 40) -> list[str]:
    """Have perf look at the calls; gives stacks with their counts (``main;f;g 12``), of at most
    ``limit`` frames from the inside. Raises RequestError."""
    found = _tool("perf", "perf (linux-tools)")
    with tempfile.TemporaryDirectory(prefix="warmcc-perf-") as folder:
        data = os.path.join(folder, "data")
        control = [os.path.join(folder, name) for name in ("control", "answer")]
        for path in control:
            os.mkfifo(path, 0o600)
        python = [CHILD[0], *(["-X", "perf"] if sys.version_info >= (3, 12) else []), *CHILD[1:]]
        # It begins to look when the process says so: not at imports
        told = run(
            [found, "record", "-q", "-F", str(_RATE), "--call-graph", "dwarf,16384", "-o", data,
             "-D", "-1", "--control", f"fifo:{','.join(control)}", "--", *python],
            {**given, "seconds": SECONDS, "probes": False, "control": control},
        )  # fmt: skip
        try:
            done = subprocess.run(
                [found, "script", "--no-inline", "-i", data, "-F", "comm,ip,sym"],
                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace",
                check=False, timeout=_PATIENCE,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise RequestError(f"perf script took more than {_PATIENCE:.0f} s") from None
        finally:
            with contextlib.suppress(OSError):  # -X perf writes it
                os.unlink(f"/tmp/perf-{told['pid']}.map")
    counts = Counter(";".join(stack[-limit:]) for stack in stacks(done.stdout))
    if not counts:
        raise RequestError("perf has recorded nothing; is perf_event_paranoid above 2?")
    return [f"{stack} {count}" for stack, count in counts.items()]


def stacks(text: str) -> Iterator[list[str]]:
    r"""The stacks in the output of ``perf script``, from the outermost frame on.

    >>> list(stacks("python\n   7f g+0x1\n   8a f\n\npython\n   8a f\n"))
    [['f', 'g'], ['f']]
    """
    for block in text.split("\n\n"):
        frames = []
        for line in block.splitlines()[1:]:
            _, _, symbol = line.strip().partition(" ")
            frames.append(_ADDRESS.sub("", symbol).replace(";", ",") or "?")
        if frames:
            yield frames[::-1]


def _tool(name: str, product: str) -> str:
    """Raises RequestError."""
    found = shutil.which(name)
    if found is None:
        raise RequestError(f"{name} is not in PATH; install {product}, or leave out --{name}")
    return found
