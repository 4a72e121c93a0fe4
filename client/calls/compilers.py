"""Which compilers do the same work by another name, so that what is warm for one serves it."""

from __future__ import annotations

import os
import re
import shlex
import shutil

_HOST = ("-ccbin", "--compiler-bindir")
_NAME = re.compile(r"[\w./+][\w./+-]*")


def for_cpp(program: str, usual: str) -> str:
    """A compiler's name for C++. setuptools compiles C++ with gcc, which does what g++ does for it;
    where that is the ``usual`` compiler, what is warm for this one serves it."""
    other = _as_cpp(program)
    if other == _real(usual):
        return usual
    return shlex.quote(other if os.path.exists(other) else program)


def split_host(words: list[str]) -> tuple[list[str], str]:
    """nvcc's flags without its ``-ccbin``, which torch adds where ``CC`` is set, and what it names:
    "" without one. What a request cannot name stays among the flags."""
    rest: list[str] = []
    hosts: list[str] = []
    each = iter(words)
    for word in each:
        name, equals, value = word.partition("=")
        if name in _HOST:
            hosts.append(value if equals else next(each, ""))
        else:
            rest.append(word)
    if len(hosts) == 1 and can_be_named(hosts[0]):
        return rest, hosts[0]
    return (words if hosts else rest), ""


def can_be_named(host: str) -> bool:
    """Whether a request can name nvcc's host compiler: in any folder, it is the same one."""
    return _NAME.fullmatch(host) is not None and ("/" not in host or host.startswith("/"))


def with_host(environment: dict[str, str], host: str) -> dict[str, str]:
    """The environment of a request for a CUDA source, where ``CC`` says what nvcc takes for the
    host, whatever the caller's says. Without one, nvcc takes the gcc that it finds first."""
    found = {name: value for name, value in environment.items() if name != "CC"}
    return found | ({"CC": host} if host and _as_cpp(host) != _as_cpp("gcc") else {})


def _as_cpp(program: str) -> str:
    folder, name = os.path.split(_real(program))
    return os.path.join(folder, re.sub(r"gcc(?=-[\d.]+$|$)", "g++", name))


def _real(program: str) -> str:
    return os.path.realpath(shutil.which(program) or program)
