"""Run parity cases, each in a process and a folder of its own.

``python -m tests.parity.run SIDE CASE`` runs one and prints what it saw as JSON. SIDE is ``stock``,
``warmcc``, or ``installed``: torch's own names, behind which warmcc stands.
``python -m tests.parity.run fork`` has torch imported and forks for each case that it reads: that
saves the import.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from tests.parity.case import Case, World, builtin_name, stock_parameters
from tests.parity.cases import BY_NAME
from tests.support import ROOT

LIMIT_SECONDS = 280
_RESULT = "PARITY-RESULT "


class Forking:
    """A process that forks for each case. Only for cases that leave the environment alone, as torch
    is imported.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.parity.run", "fork"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def run(
        self, side: str, case: Case, folder: str, variables: dict[str, str]
    ) -> tuple[bytes, int]:
        """What the case printed, and its exit status."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        asked = {"side": side, "case": case.name, "folder": folder, "environment": variables}
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        code = int(self._process.stdout.readline())
        return (Path(folder) / OUTPUT).read_bytes(), code

    def close(self) -> None:
        self._process.communicate()


OUTPUT = "parity-output"  # in the case's folder: what it printed


def serve() -> None:
    """Fork for each line of the standard input; tell the exit status of each on the standard
    output.
    """
    import torch  # noqa: F401

    for line in sys.stdin:
        asked = json.loads(line)
        child = os.fork()
        if child == 0:
            os.chdir(asked["folder"])
            output = os.open(OUTPUT, os.O_WRONLY | os.O_CREAT, 0o600)
            null = os.open(os.devnull, os.O_RDONLY)
            for number, opened in enumerate((null, output, output)):
                os.dup2(opened, number)
            os.environ.clear()
            os.environ.update(asked["environment"])
            signal.alarm(LIMIT_SECONDS)
            try:
                main(asked["side"], asked["case"])
            finally:
                sys.stdout.flush()
                os._exit(0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


def run(
    side: str, case: Case, environment: dict[str, str], forking: Forking | None = None
) -> dict[str, Any]:
    """Run one case in a new process: {"observed": …, "seconds": …} or {"skipped": …}. The side
    ``module`` is ``installed``, in a process of ``python -m warmcc``. Raises AssertionError.
    """
    with tempfile.TemporaryDirectory(prefix="warmcc-parity-") as folder:
        variables = {**os.environ, **environment, "TORCH_EXTENSIONS_DIR": f"{folder}/extensions"}
        variables["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])
        )
        for name, value in case.environment.items():
            if value is None:
                variables.pop(name, None)
            else:
                variables[name] = value.replace("{folder}", folder)
        module = side == "module"
        if forking is not None and not case.environment and not module:
            return _result(side, case, *forking.run(side, case, folder, variables))
        done = subprocess.run(
            [sys.executable, *(["-m", "warmcc"] if module else []), "-m", "tests.parity.run",
             "installed" if module else side, case.name],
            cwd=folder, env=variables, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT_SECONDS, check=False,
        )  # fmt: skip
    return _result(side, case, done.stdout, done.returncode)


def _result(side: str, case: Case, output: bytes, code: int) -> dict[str, Any]:
    text = output.decode(errors="replace")
    before, mark, result = text.rpartition(_RESULT)
    assert mark, f"{case.name} through {side} ended with {code}:\n{text[-6000:]}"
    found: dict[str, Any] = json.loads(result.splitlines()[0])
    found["output"] = before
    return found


def main(side: str, name: str) -> None:
    case = BY_NAME[name]
    if side == "installed":
        import warmcc

        warmcc.install()
    known = stock_parameters()
    if missing := case.unknown_parameters(known):
        print(_RESULT + json.dumps({"skipped": f"this torch does not know {', '.join(missing)}"}))
        return
    if side in ("stock", "installed"):
        from torch.utils import cpp_extension as implementation
    else:
        import warmcc as implementation
    world = World(Path.cwd(), implementation.load, implementation.load_inline, known)
    start = time.perf_counter()
    try:
        observed = case.observe(world)
    except Exception as error:  # where stock fails, warmcc must fail alike
        traceback.print_exc(file=sys.stdout)
        observed = {"the case raises": builtin_name(error)}
    seconds = round(time.perf_counter() - start, 2)
    print("\n" + _RESULT + json.dumps({"observed": observed, "seconds": seconds}), flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["fork"]:
        serve()
    else:
        main(*sys.argv[1:])
