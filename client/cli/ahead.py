"""What is made before somebody waits for it: ``warmcc seed`` and ``warmcc warm``.

``seed`` builds a known set of extensions. A set is a TOML or JSON file: ``[[extension]]`` tables
(in JSON a list of objects) with the arguments of torch's ``load_inline``, or of ``load`` where
there are ``sources``. ``cpp_files`` and ``cuda_files`` name files, relative to the set, whose texts
are the inline sources. In the daemon that fills a shared store, what was seeded is put there.

``warm`` waits until the daemon has made warm what it makes by itself, and what calls with certain
flags need: for these it builds small extensions, as nothing is made for flags of a single call.
"""

from __future__ import annotations

import argparse
import ast
import json
import secrets
import shlex
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from warmcc import paths, record
from warmcc.client.cli.display.output import talk
from warmcc.errors import DaemonTimeout, RequestError
from warmcc.status import DaemonStatus, read

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_FILES = {"cpp_files": "cpp_sources", "cuda_files": "cuda_sources"}
_WARM_SECONDS = 1800.0
_LOOK_SECONDS = 1.0
_FIELDS = {"flags": "extra_cflags", "cuda_flags": "extra_cuda_cflags"}
_OF_LOG = 8  # sets of flags, those asked for most
_QUIET = 3  # looks in a row that find nothing under way: some begin a moment after others end
_KERNEL = """#include <torch/extension.h>
__global__ void warmed(float* x) { *x = NUMBERf; }
torch::Tensor warm(torch::Tensor x) { warmed<<<1, 1>>>(x.data_ptr<float>()); return x; }
"""


def add_seed(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "paths", nargs="+", metavar="FILE|DIR", help="sets: TOML or JSON, or folders of them"
    )


def cmd_seed(arguments: argparse.Namespace) -> int:
    from warmcc.client.calls import arguments as args
    from warmcc.client.connection import ask, exceptions
    from warmcc.protocol import Build, Built, Failed, encode

    wanted = [
        (file, given)
        for path in arguments.paths
        for file in _sets(Path(path))
        for given in _read(file)
    ]
    if not wanted:
        raise RequestError("nothing to build: a set is a .toml or .json file, or a folder of them")
    failed = 0
    for file, given in wanted:
        call = "load" if "sources" in given else "load_inline"
        try:
            request = args.to_request(call, args.complete(call, given))
            answer = ask.ask(request, len(encode(Build(0, request))), publish=True)
        except (args.NotCarried, RequestError) as told:
            raise RequestError(f"{file}: {told}") from None
        if isinstance(answer, Built):
            talk(f"{answer.outcome:<6} {given['name']}, {answer.seconds:.2f} s")
            continue
        failed += 1
        said = str(exceptions.exception(answer)) if isinstance(answer, Failed) else answer.reason
        talk(f"failed {given['name']}: {said}")
    talk(f"{len(wanted) - failed} of {len(wanted)} built")
    return 1 if failed else 0


def _sets(path: Path) -> list[Path]:
    if path.is_dir():
        return sorted(one for one in path.rglob("*") if one.suffix in (".toml", ".json"))
    return [path]


def _read(file: Path) -> list[dict[str, Any]]:
    """The extensions of a set, with texts in place of files. Raises RequestError."""
    try:
        text = file.read_text(encoding="utf-8")
        data = json.loads(text) if file.suffix == ".json" else tomllib.loads(text).get("extension")
    except (OSError, ValueError) as error:
        raise RequestError(f"{file}: cannot be read: {error}") from None
    if not isinstance(data, list) or not all(
        isinstance(one, dict) and isinstance(one.get("name"), str) for one in data
    ):
        raise RequestError(
            f"{file}: a set is a list of extensions ([[extension]]), each with a name"
        )
    for one in data:
        for files, sources in _FILES.items():
            try:
                texts = [
                    (file.parent / name).read_text(encoding="utf-8") for name in one.pop(files, [])
                ]
            except (OSError, UnicodeDecodeError) as error:
                raise RequestError(f"{file}: {one['name']}: {error}") from None
            if texts:
                one[sources] = [*one.get(sources, []), *texts]
        if "sources" in one:
            one["sources"] = [str((file.parent / source).absolute()) for source in one["sources"]]
    return data


def add_warm(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--flags", action="append", default=[], metavar="FLAGS",
        help="for calls with these extra_cflags: --flags='-O3 -g'; may be given several times",
    )  # fmt: skip
    parser.add_argument(
        "--cuda-flags", action="append", default=[], metavar="FLAGS",
        help="for calls with these extra_cuda_cflags: --cuda-flags='-O3'",
    )  # fmt: skip
    parser.add_argument(
        "--from-log", action="append", default=[], metavar="FILE",
        help="for the flags that calls in this log of a daemon had more than once"
        f" ({paths.STRUCTURED_LOG} in its state folder, see warmcc doctor)",
    )  # fmt: skip
    parser.add_argument(
        "--idle", action="store_true",
        help="also for what the daemon makes when it is idle (prewarm_idle)",
    )  # fmt: skip
    parser.add_argument(
        "--timeout", type=float, default=_WARM_SECONDS, metavar="SECONDS",
        help="after its builds, wait no longer than this since the start (default: %(default)g)",
    )  # fmt: skip


def cmd_warm(arguments: argparse.Namespace) -> int:
    from warmcc.client.connection.session import Session

    until = time.monotonic() + arguments.timeout
    wanted = [(kind, flags) for kind in ("flags", "cuda_flags") for flags in vars(arguments)[kind]]
    wanted += [one for name in arguments.from_log for one in _of_log(Path(name))]
    wanted = list(dict.fromkeys(wanted))
    for kind, flags in wanted if arguments.from_log else ():
        talk(f"for {_FIELDS[kind]}: {flags}")
    with Session(autostart=True):
        pass
    failed = sum(not _is_asked_for(kind, flags) for kind, flags in wanted)
    status = _when_warm(until, idle=arguments.idle)
    cpp = [(one.state, one.reason) for one in status.profiles]
    cuda = [(one.state, one.reason) for one in status.accelerators.cuda.profiles]
    reasons = {reason for state, reason in (*cpp, *cuda) if state == "failed"}
    for reason in sorted(reasons):
        talk(f"could not be made warm: {reason}")
    ready = [sum(state == "ready" for state, _ in made) for made in (cpp, cuda)]
    talk(f"warm: precompiled headers: {ready[0]}; sets of flags for CUDA: {ready[1]}")
    return 1 if failed or reasons else 0


def _of_log(log: Path) -> list[tuple[str, str]]:
    """The kinds and flags that several calls in a log had, the most frequent first. Raises
    RequestError."""
    if not log.is_file():
        raise RequestError(f"{log}: is no file; the log of a daemon is {paths.STRUCTURED_LOG}")
    found: Counter[tuple[str, str]] = Counter()
    calls = 0
    for line in record.read(log):
        inputs = line.answered.inputs if line.answered is not None else {}
        calls += bool(inputs)
        for kind, field in _FIELDS.items():
            if words := _words(inputs.get(field, "")):
                found[kind, shlex.join(words)] += 1
    if not calls:
        raise RequestError(f"{log}: has no calls; the log of a daemon is {paths.STRUCTURED_LOG}")
    return [one for one, times in found.most_common(_OF_LOG) if times > 1]


def _words(shown: str) -> list[str]:
    """A list of flags as the log shows it, without macros whose values it leaves out; nothing for
    one that it shortens.

    >>> _words("['-O3', '-DN=…']"), _words("sha256 0123456789ab"), _words("")
    (['-O3'], [], [])
    """
    try:
        found = ast.literal_eval(shown)
    except (ValueError, SyntaxError):
        return []
    if not isinstance(found, list) or "-D" in found:
        return []
    return [word for word in found if "…" not in word]


def _is_asked_for(kind: str, flags: str) -> bool:
    """Build two extensions with flags: what only one call has asked for is not made warm."""
    from warmcc.client.calls import arguments as args
    from warmcc.client.connection import ask, exceptions
    from warmcc.protocol import Build, Built, Failed, encode

    try:
        words = shlex.split(flags)
    except ValueError as error:
        raise RequestError(f"{flags!r}: {error}") from None
    for _ in range(2):
        number = str(secrets.randbelow(1 << 20))
        given: dict[str, Any] = {"name": f"warmcc_warm_{number}", "functions": ["warm"]}
        if kind == "flags":
            source = f"torch::Tensor warm(torch::Tensor x) {{ return x + {number}; }}"
            given |= {"cpp_sources": [source], "extra_cflags": words}
        else:
            given |= {
                "cpp_sources": ["torch::Tensor warm(torch::Tensor x);"],
                "cuda_sources": [_KERNEL.replace("NUMBER", f"{number}.0")],
                "extra_cuda_cflags": words,
            }
        try:
            request = args.to_request("load_inline", args.complete("load_inline", given))
            answer = ask.ask(request, len(encode(Build(0, request))))
        except args.NotCarried as told:
            raise RequestError(f"{flags!r}: {told}") from None
        if not isinstance(answer, Built):
            said = (
                str(exceptions.exception(answer)) if isinstance(answer, Failed) else answer.reason
            )
            talk(f"an extension with {flags!r} could not be built: {said}")
            return False
    return True


def _when_warm(until: float, *, idle: bool) -> DaemonStatus:
    """The daemon's status once nothing is on its way any more; with ``idle`` nothing waits for an
    idle daemon either. Raises DaemonTimeout."""
    from warmcc.client.connection.session import Session
    from warmcc.protocol import Status

    quiet, told = 0, set[str]()
    with Session(autostart=False) as session:
        while True:
            status = read(session.ask(Status).data)
            made = _made(status)
            for name in sorted(name for name, state in made.items() if state == "ready"):
                if name not in told:
                    told.add(name)
                    talk(f"ready: {name}")
            left = sorted(name for name, state in made.items() if state == "building")
            waits = status.prewarming or (idle and status.prewarming_idle)
            quiet = 0 if left or waits or status.flights else quiet + 1
            if quiet >= _QUIET:
                return status
            if time.monotonic() > until:
                names = ", ".join(left) or "what the daemon warms up"
                raise DaemonTimeout(
                    f"not warm yet: {names}; the daemon goes on, and its log is {paths.log_path()}"
                )
            time.sleep(_LOOK_SECONDS)


def _made(status: DaemonStatus) -> dict[str, str]:
    """The states of what is made warm, by name."""
    found = {f"C++ {one.title}": one.state for one in status.profiles}
    for profile in status.accelerators.cuda.profiles:
        headers = " ".join(profile.headers) if not profile.torch else "with torch"
        name = f"CUDA {profile.id} {headers}"
        is_growing = "not warm yet" in profile.no_warm_level.values()
        found[name] = "building" if is_growing else profile.state
    return found
