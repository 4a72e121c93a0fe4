"""The start of a zygote, inside the startup of its Python.

What makes it unfit for every job is found here, and written where launchers look: they do not start
it again for a while.
"""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import json
import os
import sys
from collections.abc import Iterable
from typing import Any, NoReturn

from warmcc import runs
from warmcc.daemon.run.child import Checks
from warmcc.daemon.run.imported import Imported, Recorder
from warmcc.daemon.run.main_config import MainConfig, NotThisPython
from warmcc.daemon.run.zygote import Zygote, variables


class Unfit(Exception):
    """No job can run in this zygote."""


def become_job(first: Iterable[str]) -> None:
    """Serve; returns in the process of a job. ``first`` are the modules that were there before."""
    told = json.loads(os.environ.pop(runs.ONE_STARTS))
    del os.environ["PYTHONPATH"]
    if told["pythonpath"] is not None:
        os.environ["PYTHONPATH"] = told["pythonpath"]
    try:
        zygote = _prepare(told, first)
    except Unfit as reason:
        fail(told, str(reason))
    except BaseException as error:
        fail(told, f"{type(error).__name__}: {error}")
    zygote.serve()


def fail(told: dict[str, Any], reason: str) -> NoReturn:
    """Write why, and end."""
    with contextlib.suppress(OSError):
        path = runs.file_of(told["folder"], told["facts"], runs.FAILED)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        os.write(descriptor, reason.encode("utf-8", "replace"))
    os._exit(1)


def _prepare(told: dict[str, Any], first: Iterable[str]) -> Zygote:
    """Raises Unfit, and what an import raises."""
    lock, starting, session = (int(told[name]) for name in ("lock", "starting", "session"))
    try:
        config = MainConfig(told["placeholder"])
    except NotThisPython as error:
        raise Unfit(f"this Python is not known: {error}") from None
    import site

    if site.ENABLE_USER_SITE and importlib.util.find_spec("usercustomize") is not None:
        raise Unfit("there is a module usercustomize")
    if "coverage" in sys.modules:
        raise Unfit("coverage has begun to measure")
    streams = [
        (stream.encoding, stream.errors or "strict")
        for stream in (sys.__stdin__, sys.__stdout__, sys.__stderr__)
        if stream is not None
    ]
    recorder = Recorder()
    try:
        for name in filter(None, told["modules"].split(",")):
            importlib.import_module(name)
    finally:
        recorder.stop()
    imported = Imported(recorder, first)
    if reason := imported.why_changed_meanwhile():
        raise Unfit(reason)
    if imported.lister:
        raise Unfit(f"{imported.lister} reads the whole environment at import")
    _check_alone({0, 1, 2, lock, starting})
    keyed = variables(tuple(told["prefixes"].split(",")), tuple(told["late"].split(",")))
    checks = Checks(told["facts"], imported, keyed)
    zygote = Zygote(
        runs.file_of(told["folder"], told["facts"]), lock, checks, config, float(told["idle"]),
        session, streams, told["profile"],
    )  # fmt: skip
    os.close(starting)
    gc.collect()
    gc.freeze()  # a collection in a fork would copy the memory of all objects
    return zygote


def _check_alone(expected: set[int]) -> None:
    """No threads, files or GPUs that a fork would share. Raises Unfit."""
    if (pid := os.fork()) == 0:  # OpenBLAS ends its threads before a fork
        os._exit(0)
    os.waitpid(pid, 0)
    if (count := len(os.listdir("/proc/self/task"))) > 1:
        raise Unfit(f"the import has started {count - 1} threads")
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            target = os.readlink(f"/proc/self/fd/{entry}")
            if int(entry) not in expected and not target.startswith("/proc/"):
                raise Unfit(f"the import has opened {target}")
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        raise Unfit("the import has initialised CUDA")
