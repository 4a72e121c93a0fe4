"""``warmcc status``: one screen; ``warmcc profiles``: the PCHs, and the units without one."""

from __future__ import annotations

import argparse

import msgspec

from warmcc.client.cli.display.output import as_json, bold, duration, size, table
from warmcc.client.run import running
from warmcc.errors import DaemonUnavailable
from warmcc.status import Cuda, DaemonStatus, Profile, Remote, RunZygote, Target, read


def cmd_status(arguments: argparse.Namespace) -> int:
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Status

    zygotes = running.report()
    plain = msgspec.to_builtins(zygotes)
    try:
        with Session(autostart=False) as session:
            data = session.ask(Status).data
    except DaemonUnavailable:  # they need none
        if zygotes and arguments.json:
            as_json({"runs": plain})
        elif zygotes:
            _runs(zygotes)
        raise
    data["runs"] = plain
    if arguments.json:
        as_json(data)
    else:
        show(read(data))
    return 0


def cmd_profiles(arguments: argparse.Namespace) -> int:
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Status

    with Session(autostart=False) as session:
        data = session.ask(Status).data
    if arguments.json:
        as_json(
            {
                "profiles": data["profiles"],
                "unmatched": data["unmatched"],
                "limit": data["config"]["profile_size"],
            }
        )
        return 0
    status = read(data)
    total = sum(profile.size for profile in status.profiles)
    print(
        f"{len(status.profiles)} profiles, {size(total)} of {size(status.config['profile_size'])}"
    )
    _profiles(status.profiles)
    for profile in status.profiles:
        if profile.reason:
            print(f"\n{profile.id} failed: {profile.reason}")
    if status.unmatched:
        print("\nunits without a precompiled header, or with a smaller one:")
        for reason, count in sorted(status.unmatched.items(), key=lambda item: -item[1]):
            print(f"  {count:>4}  {reason}")
    return 0


def _profiles(profiles: list[Profile]) -> None:
    rows = [("PROFILE", "STATE", "SIZE", "USES", "HEADERS AND FLAGS")]
    for one in sorted(profiles, key=lambda one: -one.uses):
        state = (
            one.state + (", finished" if one.finished else "") + (", shared" if one.shared else "")
        )
        rows.append((one.id, state, size(one.size), str(one.uses), one.title))
    table(rows, right=(2, 3))


def show(status: DaemonStatus) -> None:
    requests = status.requests
    print(
        f"{bold('warmcc ' + status.version)}  process {status.pid}, up {duration(status.uptime)}, "
        f"{size(status.memory)} of memory, {status.clients} clients"
    )
    print(f"socket   {status.socket}")
    if holder := status.cache.held_by:
        print(
            f"cache    {status.cache.path}, because another daemon writes to the one above it: "
            f"{holder}"
        )
    outcomes = ("hits", "misses", "joined", "failed", "cancelled", "busy")
    _line("requests", requests.total, {name: getattr(requests, name) for name in outcomes})
    _reasons("refused", requests.refused)
    _reasons("left to stock", {**requests.declined, **requests.fallbacks})
    elsewhere = dict(status.elsewhere)
    reused = {"reused": status.units_reused, "from another folder": elsewhere.pop("used", 0)}
    _line("compiles", status.compiles, {**reused, "links": status.links})
    _reasons("compiled again in another folder", elsewhere)
    pch, ccache = status.accelerators.pch, status.accelerators.ccache
    ways, linker = status.accelerators.ways, status.accelerators.linker
    if to_go := warming(status):
        print(f"warming  {to_go}")
    for one in status.prewarmed:
        _target(one)
    _line("warm", None, {"with PCH": pch.used, "from ccache": ccache.hits}, always=True)
    _line(
        "ways",
        None,
        {name: ways.used.get(name, 0) for name in ("lean", "direct", "stock")},
        always=True,
    )
    if samples := status.accelerators.samples:
        _line("samples", None, samples)
    for maker, reason in status.accelerators.withdrawn.items():
        print(f"         disabled {maker} and withdrew its results: {reason} differs from stock")
    _reasons("accelerator fallbacks", {**pch.fallbacks, **ways.fallbacks, **linker.fallbacks})
    if reason := status.accelerators.huge_pages.reason:
        print(f"         compilers do without huge pages: {reason}")
    for compiler, reason in pch.unfinished.items():
        print(f"         precompiled headers of {compiler} take longer: {reason}")
    _reasons("bound by pybind11", ways.pybind11)
    _reasons("behind the whole prelude", ways.whole_prelude)
    _cuda(status.accelerators.cuda)
    _stores(status)
    if status.flights:
        print()
        rows = [("BUILDING", "PHASE", "TIME", "WAITING")]
        rows += [(f.name, f.phase, duration(f.seconds), str(f.waiting)) for f in status.flights]
        table(rows, right=(2, 3))
    if status.profiles:
        print()
        _profiles(status.profiles)
    if status.zygotes:
        print()
        rows = [("ZYGOTE", "TORCH", "MEMORY", "JOBS")]
        rows += [(str(z.pid), z.torch, size(z.rss), str(z.jobs)) for z in status.zygotes]
        table(rows, right=(2, 3))
    _runs(status.runs, "\n")


def warming(status: DaemonStatus) -> str:
    """How many sets of flags are still to be made warm; nothing when all are."""
    now, later = status.prewarming, status.prewarming_idle
    if later:
        return f"{now} flag sets to go, and {later} when nothing else is to do"
    return f"{now} flag sets to go" if now else ""


def _stores(status: DaemonStatus) -> None:
    store = status.store
    kinds = ", ".join(f"{getattr(store, kind).count} {kind}" for kind in ("artifacts", "objects"))
    damaged = f", {store.quarantined} quarantined" if store.quarantined else ""
    print(f"store    {size(store.bytes)} of {size(store.limit)}: {kinds}{damaged}  {store.path}")
    if shared := status.shared_store:
        used = shared.refused or f"{shared.found} found, {shared.offered} offered"
        print(f"shared   {'not used: ' if shared.refused else ''}{used}  {shared.path}")
    if status.remote is not None:
        _remote(status.remote)


def _remote(remote: Remote) -> None:
    if remote.refused:
        print(f"remote   not used: {remote.refused}  {remote.url}")
        return
    names = ("found", "missed", "skipped", "given", "waiting", "dropped")
    counts = ", ".join(f"{getattr(remote, name)} {name}" for name in names if getattr(remote, name))
    print(f"remote   {counts or 'not used yet'}  {remote.url}")
    if remote.rests:
        print(f"         left alone for {duration(remote.rests)}: {remote.reason}")
    _reasons("lookups failed", remote.not_found)
    _reasons("results not given", remote.not_given)
    if remote.not_shared:
        print(f"         {remote.not_shared} depend on this machine, and are not shared")


def _runs(zygotes: list[RunZygote], before: str = "") -> None:
    if zygotes:
        print(end=before)
        rows = [("WARMCC RUN", "PROFILE", "MEMORY", "PROGRAMS", "RUNNING", "PYTHON")]
        rows += [
            (str(one.pid), one.profile, size(one.rss), str(one.jobs), str(one.running), one.python)
            for one in zygotes
        ]
        table(rows, right=(2, 3, 4))


def _target(one: Target) -> None:
    """What the daemon warms up for, and whether requests asked for it."""
    variables = "".join(f" {name}={value}" for name, value in sorted(one.variables.items()))
    source = "learned from a request" if one.learned else "the daemon's own"
    compiler = f", {one.compiler}" if one.compiler else ""
    served = f"; {one.served} builds" if one.served else ""
    print(
        f"         {one.state}: {one.language} for {one.python}{compiler}{variables} "
        f"({source}{served})"
    )
    if one.why_not:
        print(f"           it has not served any build: {one.why_not}")


def _cuda(cuda: Cuda) -> None:
    if not cuda.used and not cuda.profiles:
        return
    _line(
        "CUDA",
        None,
        {level: cuda.used.get(level, 0) for level in ("lean", "warm", "bare", "half", "exact")},
        always=True,
    )
    for profile in cuda.profiles:
        behind = [*(["torch"] if profile.torch else []), *profile.headers]
        headers = f" behind {', '.join(behind) or 'nothing'}"
        reason = f": {profile.reason}" if profile.reason else ""
        held = f", {size(profile.memory)} of memory" if profile.memory else ""
        print(f"         {profile.state}{headers}{held}{reason}  {profile.id}")
    _reasons("not faster", cuda.not_faster)
    _reasons("steps found", cuda.steps_found)
    _reasons("profiles dropped", cuda.dropped)


def _line(title: str, total: int | None, parts: dict[str, int], *, always: bool = False) -> None:
    shown = ", ".join(f"{count} {name}" for name, count in parts.items() if count or always)
    number = "" if total is None else f"{total}"
    print(f"{title:<8} {number}{': ' if number and shown else ''}{shown}")


def _reasons(title: str, reasons: dict[str, int]) -> None:
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"         {count} {title}: {reason}")
