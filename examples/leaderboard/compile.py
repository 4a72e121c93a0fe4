"""On the machine with a compiler: a submission becomes a bundle, and is not run.

The daemon must have ``shared`` and ``sandbox`` set, which ``check_daemon`` tries before the first
submission. Nothing of a submission is executed here: a source is text for the daemon.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import warmcc
from warmcc.errors import RequestError

from . import interface
from .submission import Report, Submission

LOG = 16 << 10  # characters of a log that a user gets
DIAGNOSTICS = 20


class Unsafe(Exception):
    """The daemon would let a submission do what it must not do."""


def compile_submission(source: Submission, out: Path) -> Report:
    """Build a submission, and write its bundle to ``out``.

    ``status`` is ``compiled``, ``compile error``, ``refused`` (what was asked for is not allowed),
    ``time limit`` or ``failed`` (the daemon is not there, or has a problem).
    """

    def report(status: str, log: object = "") -> Report:
        return Report(source.user, source.name, status, log=_cut(str(log)))

    try:
        targets = interface.ARCHITECTURES if source.language == "cuda" else None
        artifact = warmcc.build_inline(**interface.arguments(source), architectures=targets)
        warmcc.pack(out, [artifact])
    except warmcc.CompileError as error:
        late = "build_timeout" in str(error) and not error.diagnostics
        failed = report("time limit" if late else "compile error", error)
        failed.diagnostics = [
            {"line": one.line, "severity": one.severity, "message": one.message[:500]}
            for one in error.diagnostics[:DIAGNOSTICS]
        ]
        return failed
    except RequestError as error:
        return report("refused", error)
    except warmcc.WarmccError as error:
        too_large = "File size limit" in str(error) or "File too large" in str(error)
        return report("size limit" if too_large else "failed", error)
    return report("compiled")


def check_daemon() -> None:
    """Try what a hostile submission would. Raises Unsafe if it works, and WarmccError if there is
    no daemon."""
    with tempfile.NamedTemporaryFile("w", suffix=".h") as secret:
        secret.write("int seen;\n")
        secret.flush()
        for wanted, tried in (
            ("sandbox", Submission("check", "sandbox", f'#include "{secret.name}"\n')),
            ("shared", Submission("check", "shared", "int n;", flags=["-save-temps"])),
        ):
            try:
                warmcc.build_inline(**interface.arguments(tried))
            except warmcc.CompileError:
                if wanted == "sandbox":
                    continue
            except RequestError as error:
                if wanted in str(error):
                    continue
            raise Unsafe(
                f"the daemon does not refuse {tried.flags or tried.source!r}; set `{wanted} = true`"
            )


def _cut(text: str) -> str:
    return text if len(text) <= LOG else f"{text[:LOG]}\n… (cut)"
