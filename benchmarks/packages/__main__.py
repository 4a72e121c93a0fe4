"""``python -m benchmarks.packages``: packages from PyPI that no line was changed in, built by their
own ``setup.py`` or at run time: by stock torch, and under ``warmcc exec``.

The daemon is warm for its default flags and knows none of the packages. Each side builds a package
from nothing; then, where packages build at run time, what was built is taken away, and built again;
then the package is unpacked a second time, in another folder, and built there (for stock both are
the first build again, and not repeated); then one source gets another line. Shared objects of both
sides have to have the same device code, and to load; where there is a GPU, both have to compute the
same. Data goes to standard output, talk to standard error.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks.harness import Unsound, machine, say
from benchmarks.harness.cuda import CudaWorld
from benchmarks.packages.known import PACKAGES, Package
from benchmarks.packages.place import Place
from warmcc.client.cli.display.output import table

SECOND, ELSEWHERE, EDIT = "second", "elsewhere", "edit"


def measure(
    key: str, package: Package, world: CudaWorld, keep: Callable[[dict[str, object]], None]
) -> dict[str, object]:
    """Seconds of each side and moment, and what differs; what is known so far goes to ``keep``
    after each build, as a run of hours may be cut."""
    name = package.name.partition("-py3")[0]
    if key not in name:
        name = f"{name} {key}"
    stock = Place(package, world, "stock", "first")
    ours = Place(package, world, "warmcc", "first")
    taken: dict[str, dict[str, float]] = {"first": {}}
    found: dict[str, object] = {"package": name, "seconds": taken}
    for side in (stock, ours):
        taken["first"][side.side] = side.build()
        keep(found)
        say(f"  {name} first, {side.side}: {taken['first'][side.side]:.1f} s")
        side.load()
    theirs, mine = stock.device_code(), ours.device_code()
    found["device_code_differs"] = sorted(one for one in theirs if theirs[one] != mine.get(one))
    found["computed_on_gpu"] = _computed(stock, ours)
    again = Place(package, world, "warmcc", ELSEWHERE)
    moments = {SECOND: ours} if package.builds_at_run_time else {}
    for moment, place in {**moments, ELSEWHERE: again}.items():
        place.forget()
        taken[moment] = {"stock": taken["first"]["stock"], "warmcc": place.build()}
        keep(found)
        say(f"  {name} {moment}, warmcc: {taken[moment]['warmcc']:.1f} s")
    taken[EDIT] = {}
    for side in (stock, ours):
        side.edit()
        taken[EDIT][side.side] = side.build()
        keep(found)
        say(f"  {name} edit, {side.side}: {taken[EDIT][side.side]:.1f} s")
        side.load()
    for place in (stock, ours, again):
        shutil.rmtree(place.folder.parent, ignore_errors=True)
    return found


def _computed(stock: Place, ours: Place) -> list[str]:
    """What both sides have computed, where there is a GPU. Raises Unsound where they differ."""
    import torch

    if not stock.package.run or not torch.cuda.is_available():
        return []
    theirs, mine = stock.computed(), ours.computed()
    if theirs != mine:
        raise Unsound(f"{stock.package.name} computes\n{mine}\nstock's\n{theirs}")
    say(f"  {stock.package.name} computes what stock's does:\n{mine}")
    return mine.splitlines()


def rows(found: list[dict[str, object]]) -> list[tuple[str, ...]]:
    shown: list[tuple[str, ...]] = [("package", "build", "stock", "warmcc", "ratio")]
    for one in found:
        seconds = one["seconds"]
        assert isinstance(seconds, dict)
        for moment, sides in seconds.items():
            stock, ours = sides["stock"], sides["warmcc"]
            shown.append(
                (str(one["package"]), moment, f"{stock:.1f} s", f"{ours:.1f} s",
                 f"{ours / stock:.2f}")
            )  # fmt: skip
    return shown


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.packages", description=__doc__)
    parser.add_argument("--packages", default=",".join(PACKAGES), metavar="NAMES")
    parser.add_argument("--json", metavar="FILE", help="keep the figures here")
    parser.add_argument("--cold", action="store_true", help="begin as soon as the daemon answers")
    arguments = parser.parse_args()
    chosen = arguments.packages.split(",")
    if unknown := [name for name in chosen if name not in PACKAGES]:
        parser.error(f"there is no package {unknown[0]}; known: {', '.join(PACKAGES)}")
    found: list[dict[str, object]] = []

    def keep(latest: dict[str, object]) -> None:
        if arguments.json:
            kept = {"machine": machine.facts(), "packages": [*found, latest]}
            Path(arguments.json).write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")

    world = CudaWorld()
    del world.environment["WARMCC_PREWARM_IDLE"]  # as users have it
    with world:
        if not arguments.cold:
            world.wait_for_pch()
            world.wait_for_cuda()
        for name in chosen:
            before = world.cuda_levels()
            latest = measure(name, PACKAGES[name], world, keep)
            after = world.cuda_levels()
            latest["levels"] = {level: n - before.get(level, 0) for level, n in after.items()}
            keep(latest)
            found.append(latest)
    table(rows(found))
    for one in found:
        if one["device_code_differs"]:
            print(f"{one['package']}: other device code in {one['device_code_differs']}")
    return any(bool(one["device_code_differs"]) for one in found)


if __name__ == "__main__":
    sys.exit(main())
