"""``python -m benchmarks.load``: 100 clients ask for 20 extensions each, out of 50 distinct ones,
all at once.

Prints how often the daemon compiled, how long clients took beside each other, and how the time
compares with the same 50 compiles one after another by g++ alone.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

from tests.support import load
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc.client.cli.display.output import table


def alone(sources: int) -> float:
    """Seconds that g++ takes for one source after another, with the flags of the same request."""
    flags = ["-fPIC", "-shared", f"-I{sysconfig.get_paths()['include']}", "-std=c++20"]
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        for number in range(sources):
            source = Path(folder, f"{number}.cpp")
            source.write_text(module_source(1000 + number))
            subprocess.run(["c++", str(source), *flags, "-o", f"{source}.so"], check=True)
        return time.monotonic() - began


def measure(clients: int, requests: int, sources: int) -> dict[str, float]:
    daemon = Daemon(ccache=False)
    try:
        daemon.start()
        found = load.put(daemon, clients=clients, requests=requests, sources=sources)
        status = daemon.status()
        daemon.stop()
    finally:
        daemon.discard()
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
        "last client over median client": found.unfairness,
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
