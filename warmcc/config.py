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
    "": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 1 << 10, "mib": 1 << 20,
    "gib": 1 << 30,
}  # fmt: skip

# What is not read as a number, and what a variable holds with ``;`` between.
_LISTS = (
    "prewarm", "prewarm_idle", "sandbox_roots", "interpreters", "compilers", "bundle_trust",
    "run_torch", "run_compile",
)  # fmt: skip
_TEXTS = (
    *_LISTS, "log_level", "baked", "shared_store", "shared_operator", "remote", "path",
    "bundle_key",
)  # fmt: skip


Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings, with their defaults.

    store_size         size limit of the store of results, in bytes
    profile_size       size limit of the precompiled headers, in bytes
    baked              a cache that an image brings, with which a new cache begins; empty: none
    jobs               compilers at a time, over all requests; 0: ninja's default, if memory allows
    queue              builds that may wait; further ones are told when to ask again
    job_memory         memory set aside for one compiler, in bytes
    compiler_heap      memory that g++ fills before it collects garbage; 0: g++'s default (128 MiB)
    huge_pages         compilers ask for huge pages where the kernel gives them on request
    other_folders      take the object of the same source in another folder, its names replaced
    step_memory        address space of one process of a build, in bytes; 0: all memory
    step_file_size     largest file that a process of a build may write, in bytes
    step_processes     processes of its user at that time (setrlimit's NPROC); 0: any number
    shared_store       folder of shared results: its owner's daemon writes, others read; empty: none
    shared_operator    user who fills it (name or uid); empty: its owner, if no other could make it
    shared_publish     its operator's daemon shares all that it builds, not only warmcc seed's
    remote             store of results of other machines: a folder, or a URL (http, https, redis,
                       rediss, s3 and what else fsspec knows); empty: none
    remote_write       put results there, too
    remote_wait        seconds that a build waits for it before it begins
    sandbox            builds see only the toolchain, sandbox_roots and their own tree (Landlock)
    sandbox_roots      further folders whose files builds may read in the sandbox
    shared             take only requests that can run, read and write no more than a build does
    interpreters       with shared: the Pythons that callers may use; empty: the daemon's own
    compilers          with shared: values allowed for CC and CXX, as callers write them
    path               with shared: the PATH of every build; empty: the daemon's own
    build_timeout      seconds that one build may take
    idle_timeout       seconds without a client after which the daemon ends; 0: never
    rest_after         seconds without a client after which nvcc's front ends end, which the next
                       CUDA unit starts again; 0: never
    message_size       largest message that is accepted, in bytes
    pch                build and use precompiled headers
    finished_pch       instantiate the templates of a precompiled header before it is written
    binding            bind functions without pybind11 where that accepts the same calls
    lean               compile inline sources behind a part of torch's headers where that suffices
    sample_after       idle seconds before a lean build is compared with stock's; 0: never
    fast_linker        link with mold, lld or gold when one is installed
    ccache             use ccache for compiles without a precompiled header, when it is installed
    cuda_side_by_side  run nvcc's host and device compilers in parallel when nothing is warm
    cuda_warm          keep nvcc's front ends stopped behind torch's headers, to fork for each unit
    cuda_memory        memory that these front ends may hold, in bytes; 0: a third of what there
                       is, 4.5 GiB at least
    cuda_fork_memory   address space of one fork, in bytes; nvcc compiles a unit that needs more
    prewarm            flag sets whose precompiled header is built at start
    prewarm_idle       flag sets whose precompiled header is built later, when the daemon is idle;
                       behind setup.py those that a package has beside Python's own
    prewarm_cuda       warm up CUDA at start, for the architectures that torch would build for
    bundle_key         file of the private key that signs bundles, and results in remote; empty:
                       they are not signed
    bundle_trust       public keys of which one must have signed a bundle that is unpacked or
                       loaded, and a result from remote; empty: any is accepted
    run_torch          modules that a zygote of warmcc run imports
    run_compile        the same with --profile compile
    run_zygotes        zygotes that may stay, of which each holds a torch in memory; 0: none
    run_idle           seconds without a run after which a zygote ends; 0: never
    metrics_port       loopback port that serves metrics to Prometheus; 0: none
    log_level          debug, info, warning or error
    """

    store_size: Positive = 5 * GIB
    profile_size: Positive = 10 * GIB
    baked: str = ""
    jobs: Annotated[int, msgspec.Meta(ge=0)] = 0
    queue: Positive = 1000
    job_memory: Positive = 3 * GIB // 2
    compiler_heap: Annotated[int, msgspec.Meta(ge=0)] = GIB
    huge_pages: bool = True
    other_folders: bool = True
    step_memory: Annotated[int, msgspec.Meta(ge=0)] = 0
    step_file_size: Positive = 4 * GIB
    step_processes: Annotated[int, msgspec.Meta(ge=0)] = 0
    shared_store: str = ""
    shared_operator: str = ""
    shared_publish: bool = False
    remote: str = ""
    remote_write: bool = True
    remote_wait: Annotated[float, msgspec.Meta(ge=0)] = 0.25
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
    rest_after: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
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
    cuda_memory: Annotated[int, msgspec.Meta(ge=0)] = 0
    cuda_fork_memory: Positive = 12 * GIB
    prewarm: list[str] = msgspec.field(default_factory=lambda: [""])
    prewarm_idle: list[str] = msgspec.field(
        default_factory=lambda: [
            *("-O3", "setup.py", "-O2", "setup.py -O3"),
            *("setup.py -O3 -std=c++17", "setup.py -std=c++17"),
        ]
    )
    prewarm_cuda: bool = True
    bundle_key: str = ""
    bundle_trust: list[str] = []
    run_torch: list[str] = msgspec.field(default_factory=lambda: ["torch"])
    run_compile: list[str] = msgspec.field(
        default_factory=lambda: ["torch", "torch._dynamo", "torch._inductor.compile_fx"]
    )
    run_zygotes: Annotated[int, msgspec.Meta(ge=0)] = 3
    run_idle: Annotated[float, msgspec.Meta(ge=0)] = 3600.0
    metrics_port: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 0
    log_level: Literal["debug", "info", "warning", "error"] = "info"


# What a running daemon takes over when it reads its settings again; the rest waits for the next
# start.
LIVE = ("store_size", "jobs", "queue", "job_memory", "idle_timeout", "rest_after", "log_level")


def shown(settings: Config) -> dict[str, Any]:
    """Settings as plain values to show, without the password in a URL."""
    return {**msgspec.to_builtins(settings), "remote": without_password(settings.remote)}


def without_password(url: str) -> str:
    """A URL without what may be a secret in it.

    >>> without_password("rediss://:s3cret@cache:6379/1"), without_password("/srv/a@b")
    ('rediss://…@cache:6379/1', '/srv/a@b')
    >>> without_password("https://cache/warmcc?token=s3cret")
    'https://cache/warmcc?…'
    """
    return re.sub(r"\?.*", "?…", re.sub(r"^([\w.+-]+://).*@", r"\1…@", url))


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
            f"{text!r} is not a size; use for example 2GiB, 500MB or a number of bytes"
        )
    return number


def _plain(key: str, value: Any) -> Any:
    """A value of the file or a variable in the field's form (``"8GiB"`` and ``"0"`` are parsed)."""
    if key in _TEXTS or not isinstance(value, str):
        return value
    is_switch = Config.__annotations__.get(key) == "bool"
    if is_switch and value.lower() in ("0", "1", "true", "false"):
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
