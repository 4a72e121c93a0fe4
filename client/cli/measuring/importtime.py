"""``warmcc importtime``: what imports cost by module, and what a zygote of ``warmcc run`` saves."""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

from warmcc import runs
from warmcc.client.cli.display.output import as_json, bold, size, table, talk
from warmcc.errors import RequestError

if TYPE_CHECKING:
    from warmcc.client.measuring.flame import Frame
    from warmcc.client.measuring.imports import Imports, Module
    from warmcc.client.measuring.in_zygote import InZygote


def add_importtime(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE",
        help="what is imported, in this order (default: what the zygote of the profile imports)",
    )  # fmt: skip
    parser.add_argument(
        "--profile", choices=runs.PROFILES, default="torch",
        help="the profile of `warmcc run` to compare with",
    )  # fmt: skip
    parser.add_argument("--no-zygote", action="store_true", help="do not compare with `warmcc run`")
    parser.add_argument(
        "--repeat", type=int, default=3, metavar="N", help="processes for each time (default: 3)"
    )
    parser.add_argument(
        "--top", type=int, default=15, metavar="N", help="rows of each table (default: 15)"
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with a flame picture")
    parser.add_argument("--svg", metavar="FILE", help="write the flame picture")


def cmd_importtime(arguments: argparse.Namespace) -> int:
    from warmcc import config
    from warmcc.client.measuring import imports, in_zygote
    from warmcc.client.measuring.written import check, write
    from warmcc.client.run.launch import python_of_this

    settings = config.load()
    names = arguments.modules or (
        settings.run_torch if arguments.profile == "torch" else settings.run_compile
    )
    try:
        if arguments.repeat < 1 or arguments.top < 1:
            raise RequestError("--repeat and --top take a number from 1 on")
        check(arguments.html, arguments.svg)
        found = imports.measure(python_of_this(), names, arguments.repeat)
        warm = in_zygote.InZygote(why_none="--no-zygote")
        if not arguments.no_zygote:
            warm = in_zygote.measure(names, arguments.profile, arguments.repeat)
        if arguments.html or arguments.svg:
            from warmcc.client.measuring import flame
            from warmcc.client.measuring.page import page

            root, title = _tree(found), f"import {', '.join(names)}"
            if arguments.svg:
                write(arguments.svg, flame.svg(f"{title}: {_ms(root.value)}", root))
            if arguments.html:
                tables = [_packages(found, 100), _modules(found, 1000)]
                write(arguments.html, page(title, _facts(found, warm), flame.html(root), tables))
    except RequestError as error:
        talk(f"warmcc: {error}")
        return 2
    if arguments.json:
        as_json(_data(found, warm))
    else:
        _show(found, warm, arguments.top)
    return 0


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.1f} ms"


def _facts(found: Imports, warm: InZygote) -> list[str]:
    """What is said in whole lines."""
    count, files = 0, 0
    for module in found.all():
        count, files = count + 1, files + module.opened
    lines = [
        f"import {', '.join(found.names)}: {_ms(found.seconds)}; {count} modules, {files} files"
        f" opened, {size(found.memory)} of memory, {found.threads - 1} threads started",
        f"{_ms(found.measured)} while each module was measured, as below",
    ]
    if warm.why_none:
        lines.append(f"with warmcc run: not compared: {warm.why_none}")
        return lines
    missing = warm.missing(found)
    left = sum(module.whole for module in missing)
    lines.append(
        f"with warmcc run: {_ms(warm.seconds)}; the zygote has {len(warm.before)} modules imported"
        + (f", and lacks {_ms(left)} of these imports:" if missing else ", all of these among them")
    )
    lines += [f"  {_ms(module.whole)} {module.name}" for module in missing[:5]]
    return lines


def _packages(found: Imports, most: int) -> list[tuple[str, ...]]:
    own: dict[str, float] = defaultdict(float)
    modules: Counter[str] = Counter()
    opened: Counter[str] = Counter()
    for module in found.all():
        own[module.package] += module.own
        modules[module.package] += 1
        opened[module.package] += module.opened
    total = sum(own.values()) or 1
    rows: list[tuple[str, ...]] = [("PACKAGE", "SELF", "SHARE", "MODULES", "FILES")]
    for name, seconds in sorted(own.items(), key=lambda pair: -pair[1])[:most]:
        share = f"{100 * seconds / total:.0f} %"
        rows.append((name, _ms(seconds), share, str(modules[name]), str(opened[name])))
    return rows


def _modules(found: Imports, most: int) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = [("MODULE", "SELF", "CUMULATIVE", "FILES", "FOLDERS")]
    for module in sorted(found.all(), key=lambda one: -one.own)[:most]:
        files, folders = str(module.opened), str(module.listed)
        rows.append((module.name, _ms(module.own), _ms(module.whole), files, folders))
    return rows


def _show(found: Imports, warm: InZygote, most: int) -> None:
    first, *others = _facts(found, warm)
    print("\n".join([bold(first), *others, ""]))
    table(_packages(found, most), right=(1, 2, 3, 4))
    print()
    table(_modules(found, most), right=(1, 2, 3, 4))


def _tree(found: Imports) -> Frame:
    from warmcc.client.measuring.flame import Frame

    def frame(module: Module) -> Frame:
        note = f"{_ms(module.whole)}, itself {_ms(module.own)}, {module.opened} files opened"
        return Frame(module.name, module.whole, note, [frame(one) for one in module.children])

    inside = [frame(module) for module in found.roots]
    return Frame("all", sum(one.value for one in inside), "", inside)


def _data(found: Imports, warm: InZygote) -> dict[str, Any]:
    def plain(module: Module) -> dict[str, Any]:
        return {
            "name": module.name, "self": module.own, "cumulative": module.whole,
            "opened": module.opened, "listed": module.listed,
            "imports": [plain(one) for one in module.children],
        }  # fmt: skip

    zygote: dict[str, Any] = {"why_none": warm.why_none}
    if not warm.why_none:
        zygote = {
            "seconds": warm.seconds, "modules": sorted(warm.before),
            "missing": [[one.name, one.whole] for one in warm.missing(found)],
        }  # fmt: skip
    return {
        "modules": found.names, "seconds": found.seconds, "measured": found.measured,
        "memory": found.memory, "threads": found.threads, "zygote": zygote,
        "imports": [plain(module) for module in found.roots],
    }  # fmt: skip
