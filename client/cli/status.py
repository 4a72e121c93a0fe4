"""``warmcc status``: one screen."""

from __future__ import annotations

import argparse
from typing import Any

from warmcc.client.cli.output import as_json, bold, duration, size, table


def cmd_status(arguments: argparse.Namespace) -> int:
    from warmcc.client.session import Session
    from warmcc.protocol import Status

    with Session(autostart=False) as session:
        data = session.ask(Status).data
    if arguments.json:
        as_json(data)
    else:
        show(data)
    return 0


def show(data: dict[str, Any]) -> None:
    requests, store = data["requests"], data["store"]
    print(
        f"{bold('warmcc ' + data['version'])}  process {data['pid']}, up {duration(data['uptime'])}, "
        f"{size(data['memory'])} of memory, {data['clients']} clients"
    )
    print(f"socket   {data['socket']}")
    _line("requests", requests["total"], {k: requests[k] for k in ("hits", "misses", "joined", "failed", "cancelled")})
    _reasons("left to stock", {**requests["declined"], **requests["fallbacks"]})
    _line("compiles", data["compiles"], {"reused": data["units_reused"], "links": data["links"]})
    pch, ccache = data["accelerators"]["pch"], data["accelerators"]["ccache"]
    _line("warm", None, {"with PCH": pch["used"], "from ccache": ccache["hits"]}, always=True)
    _reasons("accelerator fallbacks", pch["fallbacks"])
    kinds = ", ".join(f"{store[kind]['count']} {kind}" for kind in ("artifacts", "objects"))
    damaged = f", {store['quarantined']} quarantined" if store["quarantined"] else ""
    print(f"store    {size(store['bytes'])} of {size(store['limit'])}: {kinds}{damaged}  {store['path']}")
    if data["flights"]:
        print()
        rows = [("BUILDING", "PHASE", "TIME", "WAITING")]
        rows += [(f["name"], f["phase"], duration(f["seconds"]), str(f["waiting"])) for f in data["flights"]]
        table(rows, right=(2, 3))
    if data["profiles"]:
        print()
        profiles = [("PROFILE", "STATE", "SIZE", "USES", "FLAGS")]
        for profile in data["profiles"]:
            flags = _short(profile["flags"])
            profiles.append((profile["id"], profile["state"], size(profile["size"]), str(profile["uses"]), flags))
        table(profiles, right=(2, 3))
    if data["zygotes"]:
        print()
        rows = [("ZYGOTE", "TORCH", "MEMORY", "JOBS")]
        rows += [(str(z["pid"]), z["torch"], size(z["rss"]), str(z["jobs"])) for z in data["zygotes"]]
        table(rows, right=(2, 3))


def _line(title: str, total: int | None, parts: dict[str, int], *, always: bool = False) -> None:
    shown = ", ".join(f"{count} {name}" for name, count in parts.items() if count or always)
    number = "" if total is None else f"{total}"
    print(f"{title:<8} {number}{': ' if number and shown else ''}{shown}")


def _reasons(title: str, reasons: dict[str, int]) -> None:
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"         {count} {title}: {reason}")


def _short(flags: str) -> str:
    """A profile's flags without the folders that all of them have."""
    words = flags.split()
    kept = [w for i, w in enumerate(words) if w != "-isystem" and (i == 0 or words[i - 1] != "-isystem")]
    return " ".join(w for w in kept if w not in ("-DTORCH_API_INCLUDE_EXTENSION_H", "-fPIC"))
