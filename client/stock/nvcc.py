"""The steps of ``nvcc --dryrun``, to be run one by one."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

_STEP = re.compile(r"^#\$ (.*)$", re.M)
_ASSIGNED = re.compile(r"(\w+)=(.*)", re.S)


def steps(plan: str, environment: Mapping[str, str]) -> list[list[str]]:
    r"""The words of each step, with the values of nvcc's variables.

    >>> steps("#$ TOP=/c\n#$ gcc -I$TOP -E a.cu\n#$ rm x\n", {})
    [['gcc', '-I/c', '-E', 'a.cu'], ['rm', 'x']]
    """
    known, found = dict(environment), list[list[str]]()
    for line in _STEP.findall(plan):
        if assigned := _ASSIGNED.fullmatch(line.strip()):
            known[assigned[1]] = assigned[2].strip()
            continue
        for name in sorted(known, key=len, reverse=True):
            line = line.replace(f"${name}", known[name])
        found.append(shlex.split(line))
    return found
