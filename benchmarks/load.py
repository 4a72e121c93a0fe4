"""``python -m benchmarks.load``: 100 clients ask for 20 extensions each, out of 50 distinct ones,
all at once.

Prints how often the daemon compiled, how long clients took beside each other, and how the time
compares with the same 50 compiles one after another by g++ alone.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import World
from benchmarks.harness.requests import inline, lead_to, tiny_source
from warmcc import protocol
from warmcc.client.cli.display.output import table
from warmcc.client.connection.session import Session


def alone(sources: int) -> float:
    """Seconds that g++ takes for one source after another, with the flags of the same request."""
    flags = ["-fPIC", "-shared", f"-I{sysconfig.get_paths()['include']}", "-std=c++20"]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        for number in range(sources):
            source = Path(folder, f"{number}.cpp")
            source.write_text(tiny_source(1000 + number))
            subprocess.run(["c++", str(source), *flags, "-o", f"{source}.so"], check=True)
        return time.monotonic() - began


@dataclass
class Load:
    """``finished``: the seconds after which each client had all its answers; ``waits``: those of
    each request."""

    wrong: list[str] = field(default_factory=list)
    finished: list[float] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def put(clients: int, requests: int, sources: int) -> Load:
    """Each of ``clients`` asks for ``requests`` of ``sources`` distinct extensions, in an order of
    its own, from a thread and on a connection of its own.
    """
    wanted = [inline(tiny_source(1000 + number)) for number in range(sources)]
    load = Load()
    chance = random.Random(1)
    orders = [
        [(place * requests + number) % sources for number in range(requests)]
        for place in range(clients)
    ]
    for order in orders:
        chance.shuffle(order)
    sessions = [Session(autostart=False, timeout=120) for _ in range(clients)]
    began = time.monotonic()

    def client(session: Session, order: list[int]) -> None:
        for number in order:
            asked = time.monotonic()
            answer = session.build(wanted[number])
            load.waits.append(time.monotonic() - asked)
            if not isinstance(answer, protocol.Built):
                load.wrong.append(str(answer)[:300])
        load.finished.append(time.monotonic() - began)

    with ThreadPoolExecutor(clients) as pool:
        done = [pool.submit(client, *pair) for pair in zip(sessions, orders, strict=True)]
    for one in done:
        one.result()
    for session in sessions:
        session.close()
    return load


def measure(clients: int, requests: int, sources: int) -> dict[str, float]:
    with World(ccache="0", prewarm="") as world:
        lead_to(world)
        found = put(clients, requests, sources)
        status = world.status()
    if found.wrong:
        sys.exit(f"{len(found.wrong)} wrong answers: {found.wrong[0]}")
    return {
        "clients": clients,
        "requests": len(found.waits),
        "sources": sources,
        "compiles": status["compiles"],
        "seconds": max(found.finished),
        "seconds of g++ alone": alone(sources),
        "median wait": statistics.median(found.waits),
        "longest wait": max(found.waits),
        "last client over median client": max(found.finished) / statistics.median(found.finished),
        "daemon's memory in MB": status["memory"] / 1e6,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.load", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--requests", type=int, default=20, help="of each client")
    parser.add_argument("--sources", type=int, default=50, help="distinct ones")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    figures = measure(arguments.clients, arguments.requests, arguments.sources)
    table(
        [
            ("LOAD", ""),
            *(
                (name, f"{value:.3g}" if value % 1 else f"{value:.0f}")
                for name, value in figures.items()
            ),
        ]
    )
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
