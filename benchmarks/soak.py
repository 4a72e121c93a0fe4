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
import signal
import statistics
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import World
from benchmarks.harness.requests import files, inline, lead_to, tiny_source
from warmcc.client.cli.display.output import talk
from warmcc.client.connection.session import Session
from warmcc.client.connection.wire import Interrupted
from warmcc.errors import DaemonTimeout, DaemonUnavailable
from warmcc.protocol import Built, Cache, Declined, Failed

CLIENTS = 6
SILENCE_SECONDS = 5.0  # after which a client takes the daemon for gone, and asks again
VICTIMS = ("zygote_main.py", "ninja", "cc1plus", "as", "linker", "reaper.py")
LINKERS = ("ld", "ld.bfd", "ld.mold", "mold", "ld.lld", "lld", "ld.gold", "collect2")
TORCH = "#include <vector>\nat::Tensor f(at::Tensor x) {{ return x + {number}; }}\n"


def marked(number: int) -> str:
    return f'extern "C" __attribute__((used)) const char mark[] = "mark-{number};";\n'


def met(world: World, victim: str) -> list[int]:
    """Processes of the daemon's that run a program, found fast: a linker lives for 50 ms."""
    if victim.endswith(".py"):
        children = psutil.Process(world.pid).children()
        return [one.pid for one in children if any(w.endswith(victim) for w in one.cmdline())]
    names = [f"{name}\n" for name in (LINKERS if victim == "linker" else [victim])]
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError):
            named = Path(f"/proc/{int(entry)}/comm").read_text() in names
            if named and os.readlink(f"/proc/{entry}/cwd").startswith(str(world.folder)):
                found.append(int(entry))
    return found


class Soak:
    """Clients in threads, a killer, and a sampler, until the time is over."""

    def __init__(self, world: World, seconds: float, seed: int) -> None:
        self.world = world
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
        folder = self.world.folder / f"client-{place}"
        folder.mkdir()
        session: Session | None = None
        while time.monotonic() < self._until and not self.wrong:
            session = self._turn(session, chance, folder)
        if session is not None:
            session.close()

    def _turn(self, session: Session | None, chance: random.Random, folder: Path) -> Session | None:
        """One request; gives the session, or None when it was lost with the daemon."""
        try:
            if session is None:
                with self._starting:
                    session = Session(autostart=False, timeout=SILENCE_SECONDS)
            self._act(session, chance, folder)
        except (DaemonUnavailable, DaemonTimeout):
            self.done["the daemon was gone"] += 1
            if session is not None:
                session.close()
            return None
        except Exception as error:
            self.wrong.append(f"{type(error).__name__}: {error}")
        return session

    def _act(self, session: Session, chance: random.Random, folder: Path) -> None:
        what = chance.choices(
            ("again", "new", "edit", "error", "cancel", "torch"), (55, 15, 15, 5, 5, 5)
        )[0]
        if what == "cancel":
            self._cancel(session, chance)
            return
        if what == "error":
            wanted = inline(f"int error_{chance.randrange(50)} = nothing;\n")
            answer = session.build(wanted)
            self._check(isinstance(answer, (Failed, Declined)), what, answer)
            return
        number = chance.randrange(40) if what == "again" else chance.randrange(1 << 30)
        if what == "edit":
            (folder / "edited.h").write_text(marked(number))
            (folder / "a.cpp").write_text('#include "edited.h"\n' + tiny_source(1))
            wanted = files(folder / "a.cpp")
        elif what == "torch":
            source = marked(number) + TORCH.format(number=number)
            wanted = inline(source, functions=["f"], no_implicit_headers=False)
        else:
            wanted = inline(marked(number) + tiny_source(number))
        answer = session.build(wanted)
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

    def _cancel(self, session: Session, chance: random.Random) -> None:
        """Ask for something and give it up within 0.3 s."""
        wanted = inline(marked(-1) + tiny_source(chance.randrange(1 << 30)))
        read, write = os.pipe()
        timer = threading.Timer(chance.uniform(0, 0.3), os.write, (write, b"x"))
        timer.start()
        try:
            session.build(wanted, interrupt=read)
            self.done["built before it was cancelled"] += 1
        except Interrupted:
            self.done["cancelled"] += 1
        finally:
            timer.join()
            os.close(read)
            os.close(write)

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
                    self.world.kill()
                    self.done["kills of the daemon"] += 1
                    self.world.start()
                continue
            victim = chance.choice(VICTIMS)
            deadline = time.monotonic() + 2
            while time.monotonic() < deadline:
                with contextlib.suppress(psutil.Error, ProcessLookupError):
                    if found := met(self.world, victim):
                        os.kill(found[0], 9)
                        self.done[f"kills of {victim}"] += 1
                        break

    def _sample(self) -> None:
        status = self.world.status()
        own = psutil.Process(self.world.pid)
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
                "staging": len(list((self.world.folder / "cache" / "store" / "staging").iterdir())),
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
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that the daemon ends, too
    with World(ccache="0", store_size=str(150 << 20)) as world:
        lead_to(world)
        talk("warming up …")
        world.wait_for_pch()
        soak = Soak(world, arguments.minutes * 60, arguments.seed)
        soak.run()
        with Session(autostart=False, timeout=60) as session:
            report = session.ask(lambda number: Cache(number, "verify")).data
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
