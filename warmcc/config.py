"""Settings: defaults, overlaid by the configuration file, overlaid by ``WARMCC_<NAME>`` variables.

An unknown key or a wrong type is an error that names the key and what fits. Sizes are bytes; in the
file and in variables they may be written ``"8GiB"``.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from warmcc import paths
from warmcc.errors import ConfigError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

GIB = 1 << 30
_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}

_SWITCHES = (
    "pch",
    "finished_pch",
    "binding",
    "lean",
    "fast_linker",
    "ccache",
    "cuda_side_by_side",
    "cuda_warm",
    "prewarm_cuda",
    "sandbox",
    "shared",
    "shared_publish",
)
# What is not read as a number, and what a variable holds with ``;`` between.
_LISTS = ("prewarm", "prewarm_idle", "sandbox_roots", "interpreters", "compilers")
_TEXTS = (*_LISTS, "log_level", "shared_store", "shared_operator", "path")


Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, with their defaults.

    store_size, profile_size  limits of the store and of the precompiled headers, in bytes
    jobs                      compilers at a time, over all requests; 0: as many as ninja would, and memory allows
    queue                     builds that may wait at a time; who comes then is told when to ask again
    job_memory                memory set aside for one compiler, in bytes
    compiler_heap             memory that g++ may fill before it looks for garbage, in bytes, where the machine has as
                              much for each compiler beside its job_memory; 0: its own 128 MiB
    step_memory               address space of one process of a build, in bytes; 0: as much as there is memory
    step_file_size            largest file that it may write, in bytes
    step_processes            processes that its user may have then (setrlimit's NPROC); 0: any number
    shared_store              a folder of results that its owner's daemon fills and those of others read; empty: none
    shared_operator           the user who fills it (name or uid); empty: its owner, where others could not have made it
    shared_publish            its operator's daemon puts all that it builds there; off: only what warmcc seed builds
    sandbox                   what the daemon runs sees the toolchain, sandbox_roots and its own staging tree (Landlock)
    sandbox_roots             folders whose files builds may read in the sandbox, beside the toolchain's
    shared                    take only requests that cannot have anything else run, read or written than a build
    interpreters              with shared: the Pythons that callers may use; empty: the daemon's own
    compilers                 with shared: what CC and CXX may be, as names on path or as callers write them
    path                      with shared: the PATH of every build, whatever the caller's is; empty: the daemon's own
    build_timeout             seconds that one build may take
    idle_timeout              seconds without a client after which the daemon ends; 0: never
    message_size              largest message that is accepted, in bytes
    pch                       build and use precompiled headers
    finished_pch              have the compiler finish the templates of a precompiled header before it is written
    binding                   bind functions without pybind11 where that accepts the same calls
    lean                      compile inline sources behind a part of torch's headers where that is enough
    sample_after              seconds without a build after which a lean one is compared with stock's; 0: never
    fast_linker               link with mold, lld or gold when one is installed
    ccache                    put ccache in front of compiles that have no precompiled header, when it is installed
    cuda_side_by_side         run nvcc's programs for host and device side by side when nothing is warm for a unit
    cuda_warm                 keep nvcc's front ends stopped behind torch's headers, and fork them for each CUDA unit
    cuda_memory               memory that they may hold, in bytes
    cuda_fork_memory          address space of one fork of them, in bytes; a unit that needs more is nvcc's
    prewarm                   flag sets whose precompiled header is built at start
    prewarm_idle              flag sets whose precompiled header is built after that, when nobody has asked for a while
    prewarm_cuda              have CUDA units warm at start, for the architectures that torch would build for
    metrics_port              port of the loopback address on which Prometheus finds figures; 0: none
    log_level                 debug, info, warning or error
    """

    store_size: Positive = 5 * GIB
    profile_size: Positive = 8 * GIB
    jobs: Annotated[int, msgspec.Meta(ge=0)] = 0
    queue: Positive = 1000
    job_memory: Positive = 3 * GIB // 2
    compiler_heap: Annotated[int, msgspec.Meta(ge=0)] = GIB
    step_memory: Annotated[int, msgspec.Meta(ge=0)] = 0
    step_file_size: Positive = 4 * GIB
    step_processes: Annotated[int, msgspec.Meta(ge=0)] = 0
    shared_store: str = ""
    shared_operator: str = ""
    shared_publish: bool = False
    sandbox: bool = False
    sandbox_roots: list[str] = []
    shared: bool = False
    interpreters: list[str] = msgspec.field(default_factory=list)
    compilers: list[str] = msgspec.field(
        default_factory=lambda: ["c++", "g++", "clang++", "cc", "gcc", "clang"]
    )
    path: str = ""
    build_timeout: Seconds = 1800.0
    idle_timeout: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    message_size: Positive = 32 << 20
    pch: bool = True
    finished_pch: bool = True
    binding: bool = True
    lean: bool = True
    sample_after: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    fast_linker: bool = True
    ccache: bool = True
    cuda_side_by_side: bool = True
    cuda_warm: bool = True
    cuda_memory: Positive = 9 * GIB // 2
    cuda_fork_memory: Positive = 12 * GIB
    prewarm: list[str] = msgspec.field(default_factory=lambda: [""])
    prewarm_idle: list[str] = msgspec.field(default_factory=lambda: ["-O3", "-O2"])
    prewarm_cuda: bool = True
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"


# What a running daemon takes over when it reads its settings again; the rest waits for the next
# start.
LIVE = ("store_size", "jobs", "queue", "job_memory", "idle_timeout", "log_level")


def changed(old: Config, new: Config) -> list[str]:
    """The names of settings that differ."""
    return [name for name in Config.__struct_fields__ if getattr(old, name) != getattr(new, name)]


def _number(value: str) -> int | float | str:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if match is None or match[2].lower() not in _UNITS:
        return value
    number = float(match[1]) * _UNITS[match[2].lower()]
    return int(number) if number.is_integer() else number


def parse_size(text: str) -> int:
    """Bytes from ``"2GiB"``. Raises ConfigError."""
    number = _number(text)
    if not isinstance(number, int):
        raise ConfigError(
            f"{text!r} is not a size; write for example 2GiB, 500MB or a number of bytes"
        )
    return number


def _plain(key: str, value: Any) -> Any:
    """A value from the file or a variable, with ``"8GiB"`` and ``"0"`` in the form that the field
    wants.
    """
    if key in _TEXTS or not isinstance(value, str):
        return value
    if key in _SWITCHES and value.lower() in ("0", "1", "true", "false"):
        return value.lower() in ("1", "true")
    return _number(value)


def _reject_unknown(keys: Any, where: str) -> None:
    import difflib

    for key in keys:
        if key not in Config.__struct_fields__:
            near = difflib.get_close_matches(key, Config.__struct_fields__, 1)
            hint = (
                f"; did you mean {near[0]!r}?"
                if near
                else f"; known: {', '.join(Config.__struct_fields__)}"
            )
            raise ConfigError(f"{where}: unknown key {key!r}{hint}")


def load(file: Path | None = None, environ: dict[str, str] | None = None) -> Config:
    """Read the settings. Raises ConfigError that says where, what and what would fit."""
    file = file or paths.config_file()
    environ = dict(os.environ) if environ is None else environ
    values: dict[str, Any] = {}
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    try:
        values.update(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    _reject_unknown(values, str(file))
    for key in Config.__struct_fields__:
        if (value := environ.get(f"WARMCC_{key.upper()}")) is not None:
            values[key] = value if key not in _LISTS else value.split(";") if value else []
    for key, value in values.items():
        values[key] = _plain(key, value)
        try:
            msgspec.convert({key: values[key]}, Config)
        except msgspec.ValidationError as error:
            variable = f"WARMCC_{key.upper()}"
            where = variable if variable in environ else str(file)
            raise ConfigError(f"{where}: {key} = {value!r}: {error}") from error
    return msgspec.convert(values, Config)
