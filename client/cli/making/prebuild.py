"""``warmcc prebuild``: the variants of a spec file into a package, or how long that would take."""

from __future__ import annotations

import argparse
import contextlib
from concurrent.futures import Executor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from warmcc.client.cli.display.output import as_json, duration, talk
from warmcc.errors import PrebuildError, RequestError

if TYPE_CHECKING:
    from warmcc.client.prebuild.api import Prebuilt
    from warmcc.client.prebuild.estimate import Estimate
    from warmcc.client.prebuild.plan import Plan


def add_prebuild(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("spec", metavar="SPEC", help="the spec file: TOML (docs/user/prebuild.md)")
    parser.add_argument(
        "-o", "--output", default=".", metavar="FOLDER",
        help="where the package is written (default: here)",
    )  # fmt: skip
    parser.add_argument("--wheel", action="store_true", help="write a wheel as well")
    parser.add_argument(
        "--keep-going", action="store_true",
        help="leave variants out that do not build, and build the others",
    )  # fmt: skip
    parser.add_argument(
        "--dry-run", action="store_true",
        help="build nothing: list the variants, and estimate the time from earlier builds",
    )  # fmt: skip
    parser.add_argument(
        "--jobs", type=int, metavar="N",
        help="have so many variants under way at a time (default: two per processor)",
    )  # fmt: skip
    parser.add_argument(
        "--executor", metavar="FILE.py:FUNCTION",
        help="build with the concurrent.futures.Executor that this function returns",
    )  # fmt: skip
    parser.add_argument(
        "--store", metavar="FOLDER|URL",
        help="where the executor's machines put results (default: below the output)",
    )  # fmt: skip


def cmd_prebuild(arguments: argparse.Namespace) -> int:
    from warmcc.client.prebuild import plan, spec

    try:
        if arguments.jobs is not None and arguments.jobs < 1:
            raise RequestError(f"--jobs must be at least 1, not {arguments.jobs}")
        read = spec.read(Path(arguments.spec))
        try:
            made = plan.plan(
                read.name, read.variants, read.template, entry=read.entry, version=read.version
            )
        except RequestError as error:
            raise RequestError(f"{arguments.spec}: {error}") from None
        if arguments.dry_run:
            return _estimated(made, read.size, arguments)
        return _built(made, arguments)
    except RequestError as error:
        talk(f"warmcc: {error}")
        return 2
    except (PrebuildError, OSError) as error:
        if arguments.json:
            as_json({"error": str(error), "failed": getattr(error, "failures", {})})
        talk(f"warmcc: {error}")
        return 1


def _built(made: Plan, arguments: argparse.Namespace) -> int:
    from warmcc.client.cli.display.variants import choose
    from warmcc.client.prebuild import api

    with contextlib.ExitStack() as held:
        executor = None
        if arguments.executor is not None:
            executor = held.enter_context(_executor(arguments.executor))
        view = held.enter_context(choose(made.name, len(made.jobs)))
        built = api.build(
            made, Path(arguments.output), wheel=arguments.wheel, keep_going=arguments.keep_going,
            jobs=arguments.jobs, executor=executor, store=arguments.store, on_progress=view.show,
        )  # fmt: skip
    if arguments.json:
        as_json(asdict(built))
    else:
        _tell(built)
    return 1 if built.failed else 0


def _executor(place: str) -> Executor:
    """Raises RequestError."""
    from warmcc.client.prebuild import spec

    found = spec.loaded(place, Path())()
    if not isinstance(found, Executor):
        raise RequestError(f"{place} returns {type(found).__name__}, and no Executor")
    return found


def _tell(built: Prebuilt) -> None:
    for key, text in built.failed.items():
        talk(f"failed {key}: {text}")
    ends = ", ".join(f"{count} {how}" for how, count in sorted(built.how.items()))
    talk(f"{len(built.variants)} variants in {duration(built.seconds)} ({ends})")
    print(built.path)
    if built.wheel is not None:
        print(built.wheel)


def _estimated(made: Plan, size: int, arguments: argparse.Namespace) -> int:
    from warmcc.client.prebuild import estimate
    from warmcc.client.prebuild.draft import Draft

    found = estimate.estimate(made, Draft(Path(arguments.output).absolute(), made.name))
    if arguments.json:
        keys = [job.key for job in made.jobs]
        as_json({**asdict(found), "left": found.left, "space": size, "keys": keys})
        return 0
    for job in made.jobs:
        print(f"run_config_{job.number}  {job.key}")
    talk(f"{found.variants} variants of {size}, {found.done} of them built")
    talk(_time(found))
    return 0


def _time(found: Estimate) -> str:
    if found.seconds is None or found.left is None:
        return "time: unknown, as no build of the kind was measured here"
    builds = f"{found.measured} build" + ("s" if found.measured > 1 else "")
    return (
        f"time: about {duration(found.left)} with {found.processors} processors "
        f"({duration(found.seconds)} of one per variant, the median of {builds} of {found.of})"
    )
