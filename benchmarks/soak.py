"""``python -m benchmarks.soak``: half an hour of mixed clients, edits and kills against one daemon.

Every answer is checked: a library holds a mark of the source that it was asked for. Prints what was
done and writes the samples (throughput, memory, files, processes); ``--plot`` draws them.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import json
import os
import random
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import zmq

from tests.fault.test_kill import met
from tests.support.calls import Connection, load_request, module_source, request
from tests.support.daemons import Daemon
from warmcc.client.cli.display.output import talk
from warmcc.protocol import Built, Cache, Cancel, Declined, Failed, Refused
from warmcc.request import Request

CLIENTS = 6
SILENCE_SECONDS = 5.0  # after which a client takes the daemon for gone, and asks again
VICTIMS = ("zygote_main.py", "ninja", "cc1plus", "as", "linker", "reaper.py")
TORCH = "#include <vector>\nat::Tensor f(at::Tensor x) {{ return x + {number}; }}\n"


def marked(number: int) -> str:
    return f'extern "C" __attribute__((used)) const char mark[] = "mark-{number};";\n'


class Soak:
    """Clients in threads, a killer, and a sampler, until the time is over."""

    def __init__(self, daemon: Daemon, seconds: float, seed: int) -> None:
        self.daemon = daemon
        self.done: collections.Counter[str] = collections.Counter()
        self.wrong: list[str] = []
        self.samples: list[dict[str, float]] = []
        self._began = time.monotonic()
        self._until = self._began + seconds
        self._seed = seed
        self._starting = threading.Lock()  # held while the daemon is down

    def run(self) -> None:
        threads = [
            threading.Thread(target=self._client, args=(number,)) for number in range(CLIENTS)
        ]
        threads.append(threading.Thread(target=self._killer))
        for thread in threads:
            thread.start()
        while time.monotonic() < self._until and not self.wrong:
            time.sleep(10)
            with self._starting:
                self._sample()
        for thread in threads:
            thread.join()

    # ------------------------------------------------------------------ clients

    def _client(self, place: int) -> None:
        chance = random.Random(self._seed * 100 + place)
        folder = self.daemon.folder / f"client-{place}"
        folder.mkdir()
        with zmq.Context() as context:
            connection: Connection | None = None
            while time.monotonic() < self._until and not self.wrong:
                connection = self._turn(connection, context, chance, folder)
            if connection is not None:
                connection.close()

    def _turn(
        self,
        connection: Connection | None,
        context: zmq.Context[zmq.Socket[bytes]],
        chance: random.Random,
        folder: Path,
    ) -> Connection | None:
        """One request; gives the connection, or None when it was lost with the daemon."""
        try:
            if connection is None:
                with self._starting:
                    connection = Connection(self.daemon, context)
                    connection.silence = SILENCE_SECONDS
            self._act(connection, chance, folder)
        except (TimeoutError, ConnectionResetError, zmq.ZMQError):
            self.done["the daemon was gone"] += 1
            if connection is not None:
                connection.close()
            return None
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")
        return connection

    def _act(self, connection: Connection, chance: random.Random, folder: Path) -> None:
        what = chance.choices(
            ("again", "new", "edit", "error", "cancel", "torch"), (55, 15, 15, 5, 5, 5)
        )[0]
        if what == "cancel":
            number = connection.ask(
                request(cpp_sources=[marked(-1) + module_source(chance.randrange(1 << 30))])
            )
            time.sleep(chance.uniform(0, 0.3))
            connection.send(Cancel(number))
            self.done["cancelled"] += 1
            return
        if what == "error":
            wanted = request(cpp_sources=[f"int error_{chance.randrange(50)} = nothing;\n"])
            answer = self._build(connection, wanted, 30)
            self._check(isinstance(answer, (Failed, Declined)), what, answer)
            return
        number = chance.randrange(40) if what == "again" else chance.randrange(1 << 30)
        if what == "edit":
            (folder / "edited.h").write_text(marked(number))
            (folder / "a.cpp").write_text('#include "edited.h"\n' + module_source(1))
            answer = self._build(connection, load_request([folder / "a.cpp"]), 30)
        elif what == "torch":
            source = marked(number) + TORCH.format(number=number)
            wanted = request(cpp_sources=[source], functions=["f"], no_implicit_headers=False)
            answer = self._build(connection, wanted, 120)
        else:
            answer = self._build(
                connection, request(cpp_sources=[marked(number) + module_source(number)]), 30
            )
        if isinstance(answer, Built):
            self._check(f"mark-{number};".encode() in Path(answer.path).read_bytes(), what, answer)
            self.done[answer.outcome] += 1
        elif isinstance(
            answer, Declined
        ):  # the client has stock torch build it, for a reason that is told
            self.done[f"left to stock: {answer.reason[:60]}"] += 1
            self._check(bool(answer.reason) and "internal error" not in answer.reason, what, answer)
        else:
            self.done["failed, because a compiler was killed"] += 1
            self._check("Killed" in str(answer), what, answer)

    @staticmethod
    def _build(connection: Connection, wanted: Request, seconds: float) -> Any:
        """Raises ConnectionResetError when ZeroMQ has connected anew, to a daemon that knows
        nothing of this client.
        """
        answer = connection.build(wanted, seconds)
        if isinstance(answer, Refused) and "hello" in answer.reason:
            raise ConnectionResetError(answer.reason)
        return answer

    def _check(self, right: bool, what: str, answer: Any) -> None:
        self.done[what] += 1
        if not right:
            self.wrong.append(f"{what}: {str(answer)[:600]}")

    # ------------------------------------------------------------------ kills and samples

    def _killer(self) -> None:
        chance = random.Random(self._seed)
        while time.monotonic() < self._until and not self.wrong:
            time.sleep(chance.uniform(2, 8))
            if chance.random() < 0.04:
                with self._starting:
                    self.daemon.kill()
                    self.done["kills of the daemon"] += 1
                    self.daemon.start()
                continue
            victim = chance.choice(VICTIMS)
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                with contextlib.suppress(psutil.Error, ProcessLookupError):
                    if found := met(self.daemon, victim):
                        os.kill(found[0], 9)
                        self.done[f"kills of {victim}"] += 1
                        break

    def _sample(self) -> None:
        status = self.daemon.status()
        own = psutil.Process(self.daemon.pid)
        answered = sum(self.done[kind] for kind in ("again", "new", "edit", "error", "torch"))
        before = self.samples[-1] if self.samples else {"seconds": 0.0, "answered": 0}
        now = time.monotonic() - self._began
        self.samples.append(
            {
                "seconds": now,
                "answered": answered,
                "throughput": (answered - before["answered"]) / (now - before["seconds"]),
                "memory": own.memory_info().rss / 1e6,
                "files": own.num_fds(),
                "processes": len(own.children(recursive=True)),
                "store": status["store"]["bytes"] / 1e6,
                "staging": len(list((self.daemon.cache_dir / "store" / "staging").iterdir())),
                "uptime": status["uptime"],
            }
        )


def plot(samples: list[dict[str, float]], target: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    minutes = [one["seconds"] / 60 for one in samples]
    figure, axes = pyplot.subplots(3, 1, sharex=True, figsize=(8, 6.5))
    for axis, name, label in zip(
        axes,
        ("throughput", "memory", "store"),
        ("answers per second", "daemon's memory, MB", "store, MB"),
        strict=True,
    ):
        axis.plot(minutes, [one[name] for one in samples], linewidth=1.3, color="#2a6fb0")
        axis.set_ylabel(label)
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
        for place, one in enumerate(samples[1:], start=1):
            if one["uptime"] < samples[place - 1]["uptime"]:
                axis.axvline(minutes[place], color="#c44", linewidth=0.7, alpha=0.6)
    axes[0].set_title(
        "Mixed clients, edits and kills (red: the daemon was killed and started again)", fontsize=10
    )
    axes[-1].set_xlabel("minutes")
    figure.tight_layout()
    figure.savefig(target, dpi=130)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.soak", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--plot", metavar="FILE")
    arguments = parser.parse_args()
    daemon = Daemon(ccache=False, prewarm=None, store_size=150 << 20)
    try:
        daemon.start()
        talk("warming up …")
        daemon.wait_for_profiles()
        soak = Soak(daemon, arguments.minutes * 60, arguments.seed)
        soak.run()
        report = daemon.ask(Cache(1, "verify"), 60).data
        daemon.stop()
    finally:
        daemon.discard()
    figures = {
        "minutes": arguments.minutes, "seed": arguments.seed, "done": dict(soak.done),
        "wrong": soak.wrong, "damaged": report["damaged"], "samples": soak.samples,
    }  # fmt: skip
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures) + "\n", encoding="utf-8")
    if arguments.plot:
        plot(soak.samples, Path(arguments.plot))
    for name, count in sorted(soak.done.items()):
        print(f"{count:>7} {name}")
    third = max(1, len(soak.samples) // 3)
    for name in ("throughput", "memory", "files", "processes"):
        parts = (soak.samples[:third], soak.samples[-third:])
        ends = [statistics.median(one[name] for one in part) for part in parts]
        print(f"{name}: {ends[0]:.1f} in the first third, {ends[1]:.1f} in the last (medians)")
    print(f"{len(soak.wrong)} wrong answers, {report['damaged']} damaged files")
    for text in soak.wrong[:5]:
        print(text)
    return 1 if soak.wrong or report["damaged"] else 0


if __name__ == "__main__":
    sys.exit(main())
