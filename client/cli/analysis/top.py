"""``warmcc top``: what the daemon does, as it does it."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from warmcc.client.cli.display.output import as_json, duration, size, talk
from warmcc.client.cli.status import warming
from warmcc.client.run import running
from warmcc.errors import DaemonError
from warmcc.status import DaemonStatus, read

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live
    from rich.table import Table

    from warmcc.client.stock.processes import Process

_SHORTEST = 0.1
_SHELLS = {"sh", "dash", "bash", "python", "python3", "ninja"}
_MOST = 20


@dataclass
class Look:
    """The daemon at one moment: its status, the processes below it, and when that was."""

    status: DaemonStatus
    data: dict[str, Any]
    processes: list[Process]
    at: float


def add_top(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--once", action="store_true", help="print it once (as without a terminal), and end"
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="SECONDS",
        help="between two looks (default: %(default)g)",
    )  # fmt: skip


def cmd_top(arguments: argparse.Namespace) -> int:
    if not arguments.interval >= _SHORTEST:
        talk(f"warmcc: --interval has to be {_SHORTEST:g} seconds or more")
        return 2
    if arguments.json:
        found = look()
        processes = [msgspec.to_builtins(one) for one in found.processes]
        as_json({**found.data, "processes": processes})
        return 0
    if arguments.once or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        _print_once()
        return 0
    return _live(arguments.interval)


def look() -> Look:
    """Ask the daemon, and read the kernel's tables. Raises DaemonError."""
    from warmcc.client.connection.session import Session
    from warmcc.client.stock.processes import Watcher
    from warmcc.protocol import Status

    with Session(autostart=False) as session:
        data = session.ask(Status).data
    data["runs"] = msgspec.to_builtins(running.report())
    status = read(data)
    watcher = Watcher(status.pid)
    watcher.look()
    return Look(status, data, watcher.alive, time.monotonic())


def _print_once() -> None:
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else 100)
    console.print(drawn(look(), None))


def _live(interval: float) -> int:
    """Draw until Ctrl-C, also while there is no daemon."""
    from rich.live import Live

    before: Look | None = None
    with contextlib.suppress(KeyboardInterrupt), Live(auto_refresh=False, screen=True) as live:
        while True:
            before = _drawn_next(live, before)
            time.sleep(interval)
    return 0


def _drawn_next(live: Live, before: Look | None) -> Look | None:
    from rich.text import Text

    try:
        found = look()
    except DaemonError as error:
        live.update(Text(f"waiting for the daemon: {error}", style="magenta"), refresh=True)
        return before
    live.update(drawn(found, before), refresh=True)
    return found


def drawn(found: Look, before: Look | None) -> RenderableType:
    """One look; with the one before it, also what came in between."""
    from rich.console import Group
    from rich.text import Text

    status = found.status
    requests = status.requests
    answered = requests.hits + requests.misses + requests.joined
    rate = f"{requests.hits / answered:.0%} hits" if answered else "none answered yet"
    lines = [
        Text.assemble(
            (f"warmcc {status.version}", "bold"),
            f"  process {status.pid}, up {duration(status.uptime)}  {time.strftime('%H:%M:%S')}",
        ),
        Text(
            f"requests {requests.total}: {rate}, {requests.misses} misses, {requests.joined}"
            f" joined, {requests.failed} failed{_since(found, before)}"
        ),
        Text(
            f"steps    {status.permits.in_use} of {status.permits.limit} run, {status.queue} wait;"
            f" {status.compiles} compiles, {status.units_reused} reused, {status.links} links"
        ),
        Text(f"memory   {_memory(found)}"),
        Text(f"store    {size(status.store.bytes)} of {size(status.store.limit)}"),
    ]
    parts: list[RenderableType] = list(lines)
    if to_go := warming(status):
        parts.append(Text(f"warming  {to_go}", style="yellow"))
    parts += [table for table in (_builds(status), _steps(found), _servers(status)) if table]
    return Group(*parts)


def _since(found: Look, before: Look | None) -> str:
    if before is None or before.status.pid != found.status.pid:
        return ""
    came = found.status.requests.total - before.status.requests.total
    return f"; {came / max(found.at - before.at, 1e-3):.1f} a second"


def _memory(found: Look) -> str:
    status = found.status
    servers = sum(one.memory for one in status.accelerators.cuda.profiles)
    zygotes = sum(one.rss for one in status.zygotes) + sum(one.rss for one in status.runs)
    return (
        f"{size(status.memory)} daemon, {size(zygotes)} zygotes, {size(servers)} fork servers,"
        f" {size(sum(one.memory for one in _compilers(found)))} compilers"
    )


def _compilers(found: Look) -> list[Process]:
    """The programs of steps, by how long they have run."""
    zygotes = {one.pid for one in found.status.zygotes}
    some = [
        one for one in found.processes
        if one.name not in _SHELLS and one.pid not in zygotes and one.parent not in zygotes
    ]  # fmt: skip
    return sorted(some, key=lambda one: one.start)


def _table(*titles: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold", title_justify="left")
    for number, title in enumerate(titles):
        table.add_column(title, justify="right" if number else "left")
    return table


def _builds(status: DaemonStatus) -> Table | None:
    if not status.flights:
        return None
    table = _table("BUILD", "PHASE", "TIME", "WAITING")
    for one in status.flights[:_MOST]:
        table.add_row(one.name, one.phase, duration(one.seconds), str(one.waiting))
    return table


def _steps(found: Look) -> Table | None:
    some = _compilers(found)
    if not some:
        return None
    table = _table("STEP", "PROCESS", "TIME", "PROCESSOR", "MEMORY")
    for one in some[:_MOST]:
        table.add_row(
            one.name, str(one.pid), duration(one.end - one.start),
            duration(one.user + one.system), size(one.memory),
        )  # fmt: skip
    return table


def _servers(status: DaemonStatus) -> Table | None:
    """What is warm: zygotes, precompiled headers, and fork servers."""
    table = _table("WARM", "STATE", "MEMORY OR SIZE", "SERVED")
    for zygote in status.zygotes:
        table.add_row(f"zygote, torch {zygote.torch}", "ready", size(zygote.rss), str(zygote.jobs))
    for run in status.runs:
        state = f"{run.running} running"
        table.add_row(f"zygote of warmcc run, {run.profile}", state, size(run.rss), str(run.jobs))
    for cuda in status.accelerators.cuda.profiles:
        names = ", ".join(level.name for level in cuda.levels) or "no levels yet"
        served = sum(level.served for level in cuda.levels)
        table.add_row(f"CUDA {cuda.id[:8]}: {names}", cuda.state, size(cuda.memory), str(served))
    for one in sorted(status.profiles, key=lambda one: -one.uses)[:_MOST]:
        table.add_row(one.title or one.id, one.state, size(one.size), str(one.uses))
    return table if table.row_count else None
