"""Short programs with torch by three roads: a new python for each, a fork of a parent with torch
(``multiprocessing``), and ``warmcc.Runner``.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import warmcc
from benchmarks.harness.measuring import Unsound
from benchmarks.harness.world import plain_environment
from warmcc import runs

START_SECONDS = 120.0
# Forks as ``multiprocessing`` makes them, each with its output in a pipe of its own.
_PARENT = """
import json, multiprocessing, os, sys
from multiprocessing.connection import wait
import torch

context = multiprocessing.get_context("fork")

def job(code, output):
    os.dup2(output, 1)
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    sys.stdout.flush()

def begin(code):
    reading, writing = os.pipe()
    process = context.Process(target=job, args=(code, writing))
    process.start()
    os.close(writing)
    return process, reading

print("ready", flush=True)
for line in sys.stdin:
    workers, codes = json.loads(line)
    texts, running = [""] * len(codes), {}
    waiting = list(enumerate(codes))[::-1]
    while waiting or running:
        while waiting and len(running) < workers:
            number, code = waiting.pop()
            process, reading = begin(code)
            running[process.sentinel] = number, process, reading
        for sentinel in wait(list(running)):
            number, process, reading = running.pop(sentinel)
            process.join()
            with open(reading) as file:
                texts[number] = file.read()
            process.close()
    print(json.dumps(texts), flush=True)
"""


class Sides:
    """The three, in a folder for the zygote; ``environment`` is the one of all of them."""

    def __init__(self, folder: str, workers: int) -> None:
        self.workers = workers
        self.folder = folder
        self.runtime = Path(folder, "runtime")
        self.runtime.mkdir(mode=0o700)
        self.environment = {**plain_environment(), "WARMCC_RUNTIME_DIR": str(self.runtime)}
        self._python = os.path.join(os.path.dirname(sys.executable), "python")
        self._parent: subprocess.Popen[str] | None = None
        self.runner = warmcc.Runner(workers=workers)

    def start(self) -> None:
        """Start the parent and a zygote. Raises Unsound."""
        self._parent = subprocess.Popen(
            [self._python, "-c", _PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=self.environment, cwd=self.folder,
        )  # fmt: skip
        assert self._parent.stdout is not None
        if self._parent.stdout.readline() != "ready\n":
            raise Unsound("the parent with torch did not start")
        deadline = time.monotonic() + START_SECONDS
        while why := self.submit("0").result().why_plain:
            if time.monotonic() > deadline:
                raise Unsound(f"no zygote has started: {why}")
            time.sleep(0.2)

    def submit(self, code: str, **limits: Any) -> Future[warmcc.Finished]:
        """A job of the runner's, in this folder and environment."""
        return self.runner.submit(code=code, env=self.environment, cwd=self.folder, **limits)

    def zygotes(self) -> list[int]:
        answers = [runs.ask(str(path), runs.STATUS) for path in self._sockets()]
        return [int(answer.split()[0]) for answer in answers if answer]

    def by_subprocess(self, codes: Sequence[str]) -> list[str]:
        def run(code: str) -> str:
            return subprocess.run(
                [self._python, "-c", code], env=self.environment, cwd=self.folder,
                stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False,
            ).stdout  # fmt: skip

        with ThreadPoolExecutor(self.workers) as pool:
            return list(pool.map(run, codes))

    def by_multiprocessing(self, codes: Sequence[str]) -> list[str]:
        parent = self._parent
        assert parent is not None and parent.stdin is not None and parent.stdout is not None
        parent.stdin.write(json.dumps([self.workers, list(codes)]) + "\n")
        parent.stdin.flush()
        texts: list[str] = json.loads(parent.stdout.readline())
        return texts

    def by_runner(self, codes: Sequence[str]) -> list[str]:
        """Raises Unsound where python had to run one."""
        done = [job.result() for job in [self.submit(code) for code in codes]]
        if plain := next((one.why_plain for one in done if one.why_plain), ""):
            raise Unsound(f"python ran a job: {plain}")
        return [one.stdout.decode() for one in done]

    def close(self) -> None:
        self.runner.shutdown(cancel=True)
        if self._parent is not None:
            self._parent.kill()
            self._parent.communicate()
        for path in self._sockets():
            runs.ask(str(path), runs.END)

    def _sockets(self) -> list[Path]:
        return sorted((self.runtime / runs.FOLDER).glob(f"*{runs.SOCKET}"))


@contextlib.contextmanager
def sides(workers: int) -> Iterator[Sides]:
    """All three, started. Raises Unsound."""
    with (
        tempfile.TemporaryDirectory(prefix="wcc-jobs-", dir="/tmp") as folder,
        _variables({"WARMCC_RUNTIME_DIR": f"{folder}/runtime"}),  # where the runner looks
    ):
        made = Sides(folder, workers)
        try:
            made.start()
            yield made
        finally:
            made.close()


@contextlib.contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
