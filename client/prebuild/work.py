"""The work unit: one job, built by the daemon of the machine on which this runs.

It is a function of the module with plain arguments, so that any executor can take it to another
process or machine. Its result is in the store when it returns, and the record that it returns
names it. A job that is noted there, and would be built the same here, is not built again.
"""

from __future__ import annotations

import contextlib
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from warmcc import digest
from warmcc.client.bundles import identity
from warmcc.client.bundles.torch_look import torch_look
from warmcc.client.calls import arguments as args
from warmcc.client.calls import artifact
from warmcc.client.calls.artifact import Artifact
from warmcc.client.live.reload import symbols
from warmcc.client.prebuild import toolchain
from warmcc.client.prebuild.results import Results
from warmcc.errors import BundleError, DaemonError, OfflineError, WarmccError
from warmcc.request import Interpreter, Request

KEPT = "kept"  # how a job ended that was noted before
_asking = threading.Lock()


def build(job: str, module: str, arguments: dict[str, Any], place: str) -> dict[str, Any]:
    """Build a job; gives its record, with ``how`` it ended: ``miss``, ``hit`` and ``joined`` as the
    daemon says, or ``kept``. A variant that does not build has an ``error`` instead.

    Raises what is not the variant's fault: DaemonError, OfflineError, BundleError for a Python that
    does not say what it is, OSError of the store.
    """
    results = Results(place)
    given = dict(arguments)
    architectures = given.pop("architectures", None)
    try:
        request = _request(module, given)
    except (WarmccError, ValueError, TypeError, args.NotCarried) as error:
        return {"error": str(error)}
    here = toolchain.identity(request)
    noted = results.noted(job)
    if noted is not None and _still_holds(noted, here) and results.get(noted["digest"]):
        return {**noted, "how": KEPT}
    try:
        made = artifact.build_inline(module, architectures=architectures, **given)
    except (DaemonError, OfflineError):
        raise
    except (WarmccError, OSError, ValueError, TypeError) as error:
        return {"error": str(error)}
    record = _described(made, here)
    data = Path(made.path).read_bytes()
    record |= {"artifact": digest.of_bytes(data), "digest": results.put(_apart(data))}
    if made._answer.kept:  # else a file changed meanwhile, and nobody knows what it was made of
        results.note(job, record)
    return {**record, "how": made.outcome}


def prepare() -> None:
    """Ask what Python and torch are, which takes seconds, before the first result needs it."""
    with contextlib.suppress(BundleError, args.NotCarried):
        python = args.interpreter()
        _python(python, torch_look(python.torch_dir))


def _python(python: Interpreter, torch: list[int]) -> dict[str, Any]:
    """What Python and torch are. Raises BundleError."""
    with _asking:  # one process of them, not one for each thread
        return identity.of_interpreter(python, torch)


def _request(module: str, given: dict[str, Any]) -> Request:
    return args.to_request("load_inline", args.complete("load_inline", {"name": module, **given}))


def _still_holds(record: dict[str, Any], here: str) -> bool:
    """Whether the job would come to the same here: with equal compilers, and the same files."""
    files = record.get("files")
    if record.get("here") != here or not isinstance(files, dict):
        return False
    try:
        return all(digest.of_file(path) == content for path, content in files.items())
    except OSError:
        return False


def _described(made: Artifact, here: str) -> dict[str, Any]:
    """The record of an artifact. Raises BundleError, OSError."""
    request = made._request
    python = _python(request.interpreter, made._torch)
    kernels: list[dict[str, Any]] | None = None
    with contextlib.suppress(RuntimeError):  # there may be no cuobjdump
        kernels = [asdict(one) for one in made.kernels()]
    return {
        "outcome": made.outcome, "seconds": made.seconds, "steps": made.steps, "kernels": kernels,
        "needs": msgspec.to_builtins(identity.of_file(made.path, request, made.commands, python)),
        "toolchain": toolchain.versions(request), "here": here, "files": made._answer.files,
    }  # fmt: skip


def _apart(data: bytes) -> bytes:
    """A shared object whose statics are its alone, when others with the same names are loaded.

    Statics of inline functions are *unique* symbols, which a process has once: of two variants that
    differ in a macro, the second would find what the first has computed.
    """
    try:
        return symbols.apart(data)
    except symbols.NotReadable:
        return data
