"""Builds that are not loaded: one, many at a time, for architectures without a GPU, and wrong
ones."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import warmcc
from tests.support import cuda
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc import digest
from warmcc.client.connection import session
from warmcc.errors import DaemonUnavailable, RequestError


@pytest.fixture(autouse=True)
def _reaching(daemon: Daemon, fresh_client: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)


def plain(answer: int, name: str, **more: object) -> warmcc.Artifact:
    return warmcc.build_inline(name, module_source(answer, name), no_implicit_headers=True, **more)


def test_it_is_built_once_and_loaded_later(tmp_path: Path) -> None:
    built, again = plain(3, "later"), plain(3, "later")
    assert (built.outcome, again.outcome) == ("miss", "hit")
    assert built.path == again.path
    assert set(built.steps) >= {"compile", "link"} and "-c main.cpp" in built.commands[0]
    copy = built.copy_to(tmp_path)
    assert copy == str(tmp_path / "later.so")
    assert digest.of_file(copy) == built.digest
    assert built.kernels() == []
    assert built.load().answer() == 3
    assert plain(4, "later").load().answer() == 4
    assert built.load().answer() == 3, "the first one again"


def test_nothing_imports_torch(tmp_path: Path) -> None:
    (tmp_path / "tiny.cpp").write_text(module_source(9, "apart"))
    script = (
        "import sys, warmcc; built = warmcc.build('apart', ['tiny.cpp']); "
        "print(built.outcome, built.path.endswith('/apart.so'), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "miss True False\n", done.stderr


def test_mistakes() -> None:
    with pytest.raises(warmcc.CompileError) as caught:
        warmcc.build_inline("wrong", "int f() { return missing; }", no_implicit_headers=True)
    assert caught.value.diagnostics[0].line == 1
    with pytest.raises(RequestError, match="no argument 'functons'"):
        plain(1, "typed", functons=["f"])
    with pytest.raises(RequestError, match=r"'sm_90' is no architecture; they look like '9\.0'"):
        plain(1, "architecture", architectures=["sm_90"])
    with pytest.raises(RequestError, match="architectures is empty"):
        plain(1, "architecture", architectures=[])
    with pytest.raises(RequestError, match="without loading it: name of type int"):
        warmcc.build_inline(5, "int x;")  # type: ignore[arg-type]


def test_without_a_daemon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    session.forget()  # of the daemon that the fixture reaches
    tmp_path.chmod(0o700)
    monkeypatch.setenv("WARMCC_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("WARMCC_AUTOSTART", "0")
    with pytest.raises(DaemonUnavailable):
        plain(1, "nobody")


def test_many_at_a_time() -> None:
    with warmcc.Builder(max_pending=3) as builder:
        futures = [
            builder.submit_inline(f"many_{n}", module_source(n, f"many_{n}"),
                                  no_implicit_headers=True)
            for n in range(6)
        ]  # fmt: skip
        wrong = builder.submit_inline("many_wrong", "int x = ;", no_implicit_headers=True)
        assert isinstance(wrong.exception(), warmcc.CompileError)
    assert [future.result().load().answer() for future in futures] == list(range(6))


def test_one_more_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on, began = threading.Event(), threading.Event()

    def slow(name: str) -> str:
        began.set()
        goes_on.wait(60)
        return name

    monkeypatch.setattr("warmcc.client.calls.artifact.build", slow)
    with pytest.raises(ValueError, match="at least 1"):
        warmcc.Builder(max_pending=0)
    with warmcc.Builder(max_pending=1) as builder:
        first = builder.submit("first")
        began.wait(60)
        second: list[object] = []
        asking = threading.Thread(target=lambda: second.append(builder.submit("second")))
        asking.start()
        asking.join(0.2)
        assert asking.is_alive() and not second
        goes_on.set()
        asking.join(60)
    assert first.result() == "first" and second[0].result() == "second"  # type: ignore[attr-defined]


def test_an_event_loop_goes_on_meanwhile() -> None:
    async def both() -> list[warmcc.Artifact]:
        return await asyncio.gather(
            *(
                warmcc.build_inline_async(
                    f"loop_{n}", module_source(n, f"loop_{n}"), no_implicit_headers=True
                )
                for n in range(2)
            )
        )

    assert [one.load().answer() for one in asyncio.run(both())] == [0, 1]


@pytest.mark.slow
def test_kernels_for_architectures_of_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    if (reason := cuda.why_not()) is not None:
        pytest.skip(reason)
    monkeypatch.setenv("CUDA_HOME", cuda.HOME)
    source = """
    __global__ void scaled(float* x, float by) {
      __shared__ float kept[64];
      kept[threadIdx.x] = x[threadIdx.x];
      __syncthreads();
      x[threadIdx.x] = kept[63 - threadIdx.x] * by;
    }
    """
    built = warmcc.build_inline(
        "kernels", module_source(1, "kernels"), source, architectures=["8.0", "9.0"],
        no_implicit_headers=True,
    )  # fmt: skip
    kernels = built.kernels()
    assert sorted(one.architecture for one in kernels) == ["sm_80", "sm_90"]
    for one in kernels:
        assert "scaled" in one.name and one.registers > 0
        # newer architectures keep some of it for themselves
        assert 256 <= one.shared <= 256 + 1024 and (one.stack, one.local) == (0, 0)
