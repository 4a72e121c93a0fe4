"""Mistakes as the first call of all, which nvcc's own steps tell on few processors: those of the
host's half first, with all processors; those of the devices' beside the host's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

import psutil
import pytest

from tests.support.cuda import WHOLE, CudaDaemon, build, new_toy, overlap, spans_of_last
from warmcc.errors import CompileError
from warmcc.record import Span


@contextlib.contextmanager
def looking(daemon: CudaDaemon) -> Iterator[set[str]]:
    """The sources of g++'s compiles that stood still at any time."""
    found: set[str] = set()
    done = threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            for process in daemon.processes():
                with contextlib.suppress(psutil.Error):
                    if process.status() == psutil.STATUS_STOPPED and process.name() == "cc1plus":
                        found.update(w for w in process.cmdline() if w.endswith((".cpp", ".h")))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


def exact(spans: list[Span], step: str) -> list[Span]:
    """Those of nvcc's own steps: the last one, where any ran."""
    return sorted((span for span in spans if span.step == step), key=lambda span: span.start)[-1:]


def test_of_the_host(cold: CudaDaemon) -> None:
    source = WHOLE + new_toy() + "std::string wrong = at::ones({1});\n"
    with looking(cold) as stopped, pytest.raises(CompileError) as caught:
        build("host_mistake", source)
    assert 'from "at::Tensor" to "std::string" exists' in str(caught.value)
    spans = spans_of_last(cold)
    (parsed,) = exact(spans, "cudafe++")
    assert not any(span.step == "cicc" and span.end > parsed.start for span in spans)
    assert any(source.endswith("main.cpp") for source in stopped)


def test_of_the_devices(cold: CudaDaemon) -> None:
    source = WHOLE + new_toy().replace("x[i] *", "x[i] * rand() *")
    with looking(cold) as stopped, pytest.raises(CompileError) as caught:
        build("device_mistake", source)
    assert 'calling a __host__ function("rand") from a __global__ function' in str(caught.value)
    spans = spans_of_last(cold)
    assert overlap(exact(spans, "cudafe++"), exact(spans, "cicc"))
    assert not any(source.endswith("main.cpp") for source in stopped)
