"""The daemon: whether it answers, what it reports, and whether a small extension is a hit."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator

from warmcc import paths
from warmcc.client.cli.checks.finding import Finding
from warmcc.client.cli.display.output import size
from warmcc.errors import DaemonError, VersionMismatch, WarmccError
from warmcc.status import read


def daemon() -> Iterator[Finding]:
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Status

    try:
        with Session(autostart=os.environ.get("WARMCC_AUTOSTART", "1") != "0") as session:
            status = read(session.ask(Status).data)
    except VersionMismatch as error:
        yield Finding("daemon", "bad", str(error).partition("\n")[0], "warmcc stop; warmcc start")
        return
    except DaemonError as error:
        text, _, more = str(error).partition("\n")
        advice = more if more.startswith("Set ") else "warmcc start, and see: warmcc logs"
        yield Finding("daemon", "bad", text, advice)
        return
    yield Finding(
        "daemon", "ok", f"process {status.pid}, warmcc {status.version}, {size(status.memory)}"
    )
    if holder := status.cache.held_by:
        text = (
            f"another daemon writes to {paths.cache_dir()} ({holder}); "
            f"this one uses {status.cache.path}"
        )
        advice = (
            "if two containers or machines share a home, set WARMCC_CACHE_DIR to a folder for each"
        )
        yield Finding("one writer", "note", text, advice)
    for one in status.prewarmed:
        if one.why_not:
            text = f"the warm state for {one.language} has not served any build: {one.why_not}"
            advice = (
                "in a shell with its callers' environment: warmcc stop; warmcc start "
                "(or for a service: warmcc install-service)"
            )
            yield Finding("warm state", "note", text, "" if one.learned else advice)
    unfinished = status.accelerators.pch.unfinished
    for compiler, reason in unfinished.items():
        text = f"precompiled headers of {compiler} take longer, to make or to use: {reason}"
        yield Finding("plugin", "note", text)
    left = status.requests.declined | status.requests.fallbacks
    for reason, count in sorted(left.items(), key=lambda item: -item[1])[:3]:
        yield Finding("left", "note", f"{count} requests went to stock torch: {reason}")
    yield _first_hit()


def _first_hit() -> Finding:
    """Build something small, then find it."""
    from warmcc.client.calls import arguments
    from warmcc.client.connection import ask
    from warmcc.protocol import Build, Built, encode

    source = 'extern "C" int warmcc_doctor() { return 1; }\n'
    given = {
        "name": "warmcc_doctor", "cpp_sources": [source], "no_implicit_headers": True,
        "is_python_module": False,
    }  # fmt: skip
    try:
        request = arguments.to_request("load_inline", arguments.complete("load_inline", given))
        ask.ask(request, len(encode(Build(0, request))))
        began = time.perf_counter()
        answer = ask.ask(request, len(encode(Build(0, request))))
        seconds = time.perf_counter() - began
    except (WarmccError, arguments.NotCarried) as error:
        return Finding(
            "first hit", "bad", f"building a small extension failed: {error}", "see: warmcc logs"
        )
    if not isinstance(answer, Built):
        text = getattr(answer, "message", "") or getattr(answer, "reason", "")
        return Finding(
            "first hit",
            "bad",
            f"building a small extension failed: {text[:200]}",
            "see: warmcc logs",
        )
    return Finding(
        "first hit", "ok", f"{seconds * 1000:.1f} ms for an extension that was built before"
    )
