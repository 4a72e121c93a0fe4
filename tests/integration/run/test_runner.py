"""``warmcc.Runner``: jobs with captured output and limits, of which nothing stays."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

import warmcc
from tests.support.zygotes import Zygotes
from warmcc.client.run import job as job_module
from warmcc.client.run.descendants import MARK

MIB = 1 << 20


@pytest.fixture(scope="module")
def zygotes() -> Iterator[Zygotes]:
    made = Zygotes()
    made.environment["WARMCC_RUN_TORCH"] = "json;random"
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("WARMCC_RUNTIME_DIR", str(made.runtime))
            with warmcc.Runner() as runner:
                deadline = time.monotonic() + 120
                while runner.submit(code="0", env=made.environment).result().why_plain:
                    assert time.monotonic() < deadline, made.logs()
                    time.sleep(0.1)
            yield made
    finally:
        made.close()


@pytest.fixture(params=["warm", "plain"])
def env(zygotes: Zygotes, request: pytest.FixtureRequest) -> dict[str, str]:
    """An environment for which there is a zygote, or for which python runs jobs."""
    plain = {"PYTHONWARNINGS": "default"} if request.param == "plain" else {}
    return {**zygotes.environment, **plain}


@pytest.fixture
def runner() -> Iterator[warmcc.Runner]:
    with warmcc.Runner(workers=4) as made:
        yield made


def left() -> list[int]:
    """Processes that carry the mark of a job of this module's."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            variables = process.environ()
            ours = variables.get("WARMCC_RUNTIME_DIR") == os.environ["WARMCC_RUNTIME_DIR"]
            if ours and MARK in variables:
                found.append(process.pid)
    return found


def test_a_job(runner: warmcc.Runner, env: dict[str, str], zygotes: Zygotes) -> None:
    name = zygotes.script(
        "import sys, os\nprint(sys.argv, sys.stdin.read(), os.getcwd(), os.environ['X'])\n"
        "print('wrong', file=sys.stderr)\nsys.exit(3)\n"
    )
    job = runner.submit(
        name, argv=["a", "ü"], stdin="typed", env={**env, "X": "y"}, cwd=zygotes.where
    ).result()
    text = f"['{name}', 'a', 'ü'] typed {zygotes.where} y\n"
    assert (job.code, job.stdout.decode(), job.stderr) == (3, text, b"wrong\n")
    assert not (job.timed_out or job.out_of_memory or job.cancelled or job.cut)
    assert bool(job.why_plain) == ("PYTHONWARNINGS" in env)


def test_code_modules_and_signals(runner: warmcc.Runner, env: dict[str, str]) -> None:
    jobs = [
        runner.submit(code="import os; os.kill(os.getpid(), 9)", env=env),
        runner.submit(module="platform", argv=["terse"], env=env),
        runner.submit(code="1/0", env=env),
    ]
    codes = [job.result().code for job in jobs]
    assert codes == [-9, 0, 1]
    assert b"ZeroDivisionError" in jobs[2].result().stderr


def test_a_session_of_its_own(runner: warmcc.Runner, env: dict[str, str]) -> None:
    job = runner.submit(
        code="import os; print(os.getsid(0) == os.getpid() == os.getpgid(0))", env=env
    )
    assert job.result().stdout == b"True\n"


def test_a_limit_of_time_ends_all_that_it_started(
    runner: warmcc.Runner, env: dict[str, str]
) -> None:
    """Also what has left its session, and what ignores signals."""
    text = (
        "import subprocess, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen(['sleep', '77'], start_new_session=True)\n"
        "subprocess.Popen(['sh', '-c', 'sleep 78 & sleep 79'])\nprint('on', flush=True)\n"
        "time.sleep(60)"
    )
    job = runner.submit(code=text, env=env, timeout=4).result()
    assert (job.timed_out, job.code, job.stdout) == (True, -9, b"on\n")
    assert left() == []


def test_what_a_job_leaves_is_ended(runner: warmcc.Runner, env: dict[str, str]) -> None:
    job = runner.submit(code="import subprocess; subprocess.Popen(['sleep', '76'])", env=env)
    assert job.result().code == 0
    assert left() == []


def test_a_limit_of_memory(runner: warmcc.Runner, env: dict[str, str]) -> None:
    text = "import time\nx = []\nfor i in range(60): x.append(b'x' * (20 << 20)); time.sleep(0.05)"
    job = runner.submit(code=text, env=env, memory=400 * MIB).result()
    assert (job.out_of_memory, job.code) == (True, -9)
    assert runner.submit(code="0", env=env, memory=400 * MIB).result().code == 0


def test_output_is_bounded(runner: warmcc.Runner, env: dict[str, str]) -> None:
    job = runner.submit(
        code="import os\nfor i in range(200): os.write(1, b'x' * 65536)", env=env, output=1000
    ).result()
    assert (job.code, job.stdout, job.cut) == (0, b"x" * 1000, True)


def test_a_coroutine_may_wait(runner: warmcc.Runner, env: dict[str, str]) -> None:
    async def main() -> list[int]:
        jobs = [runner.submit(code=f"raise SystemExit({n})", env=env) for n in range(5)]
        return [job.code for job in await asyncio.gather(*map(asyncio.wrap_future, jobs))]

    assert asyncio.run(main()) == [0, 1, 2, 3, 4]


def test_a_runner_that_is_cancelled(env: dict[str, str]) -> None:
    runner = warmcc.Runner(workers=1)
    jobs = [runner.submit(code="import time; time.sleep(60)", env=env) for _ in range(3)]
    while not jobs[0].running():
        time.sleep(0.01)
    runner.shutdown(cancel=True)
    assert jobs[0].result().cancelled and jobs[1].cancelled() and jobs[2].cancelled()
    assert left() == []
    with pytest.raises(RuntimeError):
        runner.submit(code="0")


def test_a_zygote_that_is_stopped_keeps_no_job(
    runner: warmcc.Runner, zygotes: Zygotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot tell that the job has ended."""
    monkeypatch.setattr(job_module, "_TOLD_SECONDS", 0.5)
    (zygote,) = zygotes.pids()
    job = runner.submit(
        code="print('on', flush=True)\nimport time; time.sleep(60)", env=zygotes.environment,
        timeout=2,
    )  # fmt: skip
    while not left():
        time.sleep(0.01)
    os.kill(zygote, signal.SIGSTOP)
    try:
        done = job.result(timeout=30)
    finally:
        os.kill(zygote, signal.SIGCONT)
    assert (done.timed_out, done.code, done.why_plain) == (True, -9, "")
    assert left() == []


def test_wrong_arguments(runner: warmcc.Runner) -> None:
    for wrong in (
        {}, {"code": "0", "module": "x"}, {"code": "a\0b"}, {"code": "0", "timeout": -1},
        {"code": "0", "memory": -1}, {"code": "0", "argv": ["\0"]},
    ):  # fmt: skip
        with pytest.raises(ValueError):
            runner.submit(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="torch, compile"):
        warmcc.Runner(profile="other")
    with pytest.raises(FileNotFoundError):
        runner.submit(code="0", cwd="/none").result()


def test_many_jobs(zygotes: Zygotes, runner: warmcc.Runner) -> None:
    """With kills, time-outs and leftovers among them; no process, zombie or file is left."""
    kinds = [
        "print({n})", "import os; os.kill(os.getpid(), 15)", "import time; time.sleep(60)",
        "import os; os.fork() or os.execvp('sleep', ['sleep', '75']); print({n})",
    ]  # fmt: skip
    before = len(os.listdir("/proc/self/fd"))
    jobs = [
        runner.submit(
            code=kinds[n % 4].format(n=n), env=zygotes.environment,
            timeout=0.5 if n % 4 == 2 else 60,
        )
        for n in range(200)
    ]  # fmt: skip
    for n, job in enumerate(jobs):
        done = job.result()
        printed = f"{n}\n".encode() if n % 4 in (0, 3) else b""
        assert (done.stdout, done.code, done.timed_out) == (
            printed, {0: 0, 1: -15, 2: -9, 3: 0}[n % 4], n % 4 == 2,
        )  # fmt: skip
    assert len(os.listdir("/proc/self/fd")) == before
    assert left() == []
    (zygote,) = zygotes.pids()
    assert psutil.Process(zygote).children() == []
