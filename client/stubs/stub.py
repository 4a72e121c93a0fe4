"""The stub of a file, by a child process that loads it."""

from __future__ import annotations

import contextlib
import json
import keyword
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable

from warmcc.errors import RequestError

_SECONDS = 120.0  # for importing torch and the module
_NO_MODULE = re.compile(r"dynamic module does not define module export function")


def stub(path: str, name: str | None = None, sources: Iterable[str] = ()) -> str:
    """The text of a ``.pyi`` for the extension module at ``path``.

    The module is imported in a child process. ``name`` is the module's, by default that of the
    file; ``sources`` are texts of C++ in which parameters have names. The same file and sources
    give the same text. Raises RequestError where the file is no module or its import fails, and
    OSError.
    """
    name = os.path.basename(path).split(".")[0] if name is None else name
    if not name.isidentifier() or keyword.iskeyword(name):
        raise RequestError(f"{name!r} is not an identifier: no import statement can name its stub")
    told, said = _asked({"path": os.path.abspath(path), "name": name, "sources": [*sources]}, name)
    if "text" in told:
        return told["text"]
    error = told["error"]
    if _NO_MODULE.search(error):
        raise RequestError(
            f"{path} is not the Python module {name!r}, so there is nothing to stub; operators of "
            "TORCH_LIBRARY are called by torch.ops, which needs no stub"
        )
    raise RequestError(f"{name!r} cannot be imported: {error}{said}")


def is_cpp(name: str) -> bool:
    """Whether a file that stock leaves in a build directory is a source."""
    return name.endswith((".cpp", ".cu"))


def _asked(question: dict[str, object], name: str) -> tuple[dict[str, str], str]:
    """The child's answer, and the end of what the module printed. Raises RequestError, OSError."""
    with (
        tempfile.TemporaryDirectory(prefix="warmcc-stub-") as empty,
        tempfile.TemporaryFile() as answer,
        tempfile.TemporaryFile() as printed,
    ):
        child = subprocess.Popen(
            [sys.executable, "-m", "warmcc.client.stubs.child"], cwd=empty, stdin=subprocess.PIPE,
            stdout=answer, stderr=printed, start_new_session=True,
        )  # fmt: skip
        try:
            child.communicate(json.dumps(question).encode(), timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            raise RequestError(f"importing {name!r} took more than {_SECONDS:g} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)  # and what the module has started
            child.wait()
        answer.seek(0)
        said = _end(printed.fileno())
        try:
            return json.loads(answer.read()), said
        except ValueError:
            raise RequestError(
                f"{name!r} cannot be imported: {_ended(child.returncode)}{said}"
            ) from None


def _end(descriptor: int) -> str:
    size = os.fstat(descriptor).st_size
    text = os.pread(descriptor, 2000, max(0, size - 2000)).decode(errors="replace").strip()
    return f"\n{text}" if text else ""


def _ended(code: int) -> str:
    if code >= 0:
        return f"its process ended with code {code}"
    try:
        return f"its process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was ended by signal {-code}"
