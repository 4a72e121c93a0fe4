"""``warmcc run`` while launchers, programs and zygotes are killed, and many at a time: nothing is
left, and no run is wrong.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.zygotes import Zygotes
from warmcc import runs

WAITS = "import time; print('ready', flush=True); time.sleep(60)"
LIGHT = {"WARMCC_RUN_TORCH": "json;random"}


@pytest.fixture
def zygotes() -> Iterator[Zygotes]:
    made = Zygotes()
    made.environment |= LIGHT
    try:
        made.start()
        yield made
    finally:
        made.close()


def begin(zygotes: Zygotes, text: str, **more: object) -> subprocess.Popen[str]:
    launched = subprocess.Popen(
        zygotes.command("-c", text), cwd=zygotes.where, env=zygotes.environment, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **more,  # type: ignore[call-overload]
    )  # fmt: skip
    assert launched.stdout is not None
    return launched


def until(what: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def files(pid: int) -> list[str]:
    found = []
    for entry in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/{pid}/fd/{entry}").partition(":")[0])
    return sorted(found)


def ready(launched: subprocess.Popen[str]) -> None:
    assert launched.stdout is not None
    assert launched.stdout.readline() == "ready\n"


def test_a_killed_launcher_takes_its_program_with_it(zygotes: Zygotes) -> None:
    """And the program's group, as without a terminal that is its own."""
    (zygote,) = zygotes.pids()
    text = f"import subprocess; p = subprocess.Popen(['sleep', '61']); print(p.pid); {WAITS}"
    launched = begin(zygotes, text)
    assert launched.stdout is not None
    sleeper = int(launched.stdout.readline())
    ready(launched)
    (program,) = children(zygote)
    launched.kill()
    launched.wait()
    until(lambda: not children(zygote) and not Path(f"/proc/{program}").exists())
    until(lambda: not Path(f"/proc/{sleeper}/exe").exists())
    launched.communicate()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
def test_a_killed_program_kills_its_launcher(zygotes: Zygotes, number: signal.Signals) -> None:
    launched = begin(zygotes, WAITS)
    ready(launched)
    (program,) = children(zygotes.pids()[0])
    os.kill(program, number)
    assert launched.wait(30) == -number
    assert launched.communicate()[1] == ""


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2])
def test_a_signal_to_the_launcher_is_the_program_s(
    zygotes: Zygotes, number: signal.Signals
) -> None:
    """One to the launcher's group reaches the whole group of the program."""
    text = (
        f"import os, signal, subprocess, sys, time\nnumber = {int(number)}\n"
        "p = subprocess.Popen(['sleep', '61'])\n"
        "n = []; signal.signal(number, lambda *a: n.append(1)); print('ready', flush=True)\n"
        "while not n: time.sleep(0.01)\n"
        "time.sleep(0.2); print(len(n), p.poll()); p.kill()"
    )
    for to_group in (False, True):
        launched = begin(zygotes, text, start_new_session=True)
        ready(launched)
        (os.killpg if to_group else os.kill)(launched.pid, number)
        out, err = launched.communicate(timeout=30)
        assert (out.split(), err) == (["1", str(-number) if to_group else "None"], "")


@pytest.mark.slow
def test_the_launcher_holds_no_pipe(zygotes: Zygotes) -> None:
    """The other end learns that the program has closed its own."""
    launched = begin(zygotes, "import os, time; os.close(1); os.close(0); time.sleep(60)")
    assert launched.stdout is not None and launched.stdin is not None
    assert launched.stdout.read() == ""
    with pytest.raises(BrokenPipeError):
        while True:
            os.write(launched.stdin.fileno(), b"x" * 65536)
    assert launched.poll() is None
    launched.kill()
    launched.communicate()


def test_a_killed_zygote_leaves_its_programs(zygotes: Zygotes) -> None:
    """They go on; only how they end is not known. The next run starts another zygote."""
    text = "print('ready', flush=True); print(input())"
    launched = begin(zygotes, text)
    ready(launched)
    (zygote,) = zygotes.pids()
    os.kill(zygote, signal.SIGKILL)
    until(lambda: not Path(f"/proc/{zygote}/exe").exists())
    time.sleep(0.3)
    assert launched.poll() is None
    out, err = launched.communicate("word\n", timeout=30)
    assert (out, launched.returncode) == ("word\n", 1)
    assert err == "warmcc: the zygote of this program was killed: its exit code is not known\n"
    zygotes.start()
    assert zygotes.warm("-c", "print(1)").stderr == ""


@pytest.mark.slow
def test_a_zygote_that_is_told_to_end_waits_for_its_programs(zygotes: Zygotes) -> None:
    launched = begin(zygotes, "print('ready', flush=True); input(); raise SystemExit(9)")
    ready(launched)
    (zygote,) = zygotes.pids()
    runs.ask(str(zygotes.sockets[0]), runs.END)
    until(lambda: zygotes.sockets == [])
    assert "no zygote is there" in zygotes.warm("-c", "0").stderr
    launched.communicate("\n", timeout=30)
    assert launched.returncode == 9
    until(lambda: not Path(f"/proc/{zygote}/exe").exists())


@pytest.mark.slow
def test_stopping_the_launcher_s_program(zygotes: Zygotes) -> None:
    """A program that stops stops its launcher; SIGCONT to the launcher continues both."""
    launched = begin(zygotes, "import os; os.kill(os.getpid(), 19); print('on')")
    _, status = os.waitpid(launched.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    launched.send_signal(signal.SIGCONT)
    assert launched.communicate(timeout=30) == ("on\n", "")


@pytest.mark.slow
def test_a_hundred_at_a_time(zygotes: Zygotes) -> None:
    """Each has its own arguments, input, code and seeds; no zombie, file or process is left."""
    (zygote,) = zygotes.pids()
    before = files(zygote)
    text = (
        "import sys, random, os; print(sys.argv[1], sys.stdin.read(), random.random());"
        " sys.exit(int(sys.argv[1]) % 7)"
    )

    def one(number: int) -> tuple[str, str, str, int, str]:
        done = zygotes.warm("-c", text, str(number), stdin=f"in{number}")
        return (*done.stdout.split(), done.returncode, done.stderr)  # type: ignore[return-value]

    with ThreadPoolExecutor(100) as pool:
        found = list(pool.map(one, range(100)))
    late = [each for each in found if each[4]]  # python itself, on a slow machine
    assert all("did not answer within" in each[4] for each in late)
    assert [each[:2] for each in found] == [(str(i), f"in{i}") for i in range(100)]
    assert [each[3] for each in found] == [i % 7 for i in range(100)]
    assert len({each[2] for each in found}) == 100
    until(lambda: children(zygote) == [] and files(zygote) == before)


def test_garbage_on_the_socket(zygotes: Zygotes) -> None:
    """A client that sends nonsense, nothing, or half a job is closed, and others are served."""
    path = str(zygotes.sockets[0])
    half = (b"r\0\0\0\5abc", b"r\0\0\0\3a\0b", b"r\xff\xff\xff\xff")
    for data in (b"", b"x", b"r", *half, b"rr" * 99):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(30)
            client.connect(path)
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            answer = b""
            with contextlib.suppress(ConnectionResetError):  # with something unread
                while more := client.recv(1000):
                    answer += more
            answer = answer.removeprefix(runs.SEND)
            told = (b"refused its fork failed", b"killed 9")  # half closed, it counts as gone
            assert answer == b"" or answer.startswith(told), (data, answer)
    assert zygotes.warm("-c", "print(1)").stderr == ""


@pytest.mark.slow
def test_seeds_differ(zygotes: Zygotes) -> None:
    zygotes.environment["WARMCC_RUN_TORCH"] = "torch"
    zygotes.start()
    text = "import random, numpy, torch, uuid; print(random.random(), numpy.random.rand(), torch.rand(1).item(), uuid.uuid4(), torch.initial_seed())"  # noqa: E501
    printed = [zygotes.warm("-c", text).stdout.split() for _ in range(2)]
    assert len(printed[0]) == 5
    assert all(a != b for a, b in zip(*printed, strict=True))
