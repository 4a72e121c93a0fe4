"""A bare machine, in namespaces of its own on this one: its folders are empty, its users' homes are
what a test says, and a first call of warmcc is made there in a fresh process, as from cron or in a
container.

Needs no root where the kernel lets users make namespaces. Whatever a case starts ends with it: its
processes have a namespace of their own, too.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support import ROOT

ORDINARY = 1000
NAMESPACES = [
    "unshare",
    "--user",
    "--map-root-user",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
]
_EMPTY = ("/run", "/tmp", "/var/tmp", "/dev/shm")

# Brings a folder ($KEEP, if any) through mounts over what it lies in: begun before them, ended
# behind them.
KEEP_BEGIN = """
if [ -n "$KEEP" ]; then mkdir "$TOP/kept"; mount --bind "$KEEP" "$TOP/kept"; fi
"""
KEEP_END = """
if [ -n "$KEEP" ]; then mkdir -p "$KEEP"; mount --bind "$TOP/kept" "$KEEP"; fi
"""

# What is not the case's own is read-only. A shell stays the first process of the namespace: it
# waits for daemons that have lost their parent.
_BOOT = (
    f"""
set -e
mount -t tmpfs -o mode=1777 tmpfs "$TOP"
{KEEP_BEGIN}
for folder in $EMPTY; do mount -t tmpfs -o mode=1777 tmpfs "$folder"; done
{KEEP_END}
"""
    + """
mkdir -m 700 "$TOP/home"
printf 'root:x:0:0::%s:/bin/sh\\nuser:x:{ordinary}:0::%s:/bin/sh\\n' "$TOP/home" "$TOP/home" \\
  >"$TOP/passwd"
mount --bind "$TOP/passwd" /etc/passwd
mount -o remount,bind,ro /
printf 'int main() {{ return 42; }}\\n' >"$TOP/tiny.cpp"
{setup}
set +e
{as_user} env -i {variables} "$PYTHON" -c "$CALL" "$TOP/tiny.cpp" {then}
"""
)

# What a case does: a first call, then another process with other variables, then the end.
_CALL = """
import json, os, subprocess, sys
import warmcc
from warmcc.client.connection.session import Session
from warmcc.errors import DaemonError
from warmcc.protocol import Status

source, then = sys.argv[1], sys.argv[2:]
others = dict.fromkeys(("HOME", "TMPDIR", "XDG_RUNTIME_DIR"), "/proc")
others["PATH"] = os.environ["PATH"]
folders = [name for name in os.environ if name.startswith("WARMCC_") and name.endswith("_DIR")]
others |= {name: os.environ[name] for name in folders}
cli = [sys.executable, "-m", "warmcc.client.cli"]
told = {}
try:
    built = warmcc.load("tiny", [source], is_python_module=False, is_standalone=True)
    told["returned"] = subprocess.run([built]).returncode
    with Session(autostart=False) as session:
        told["status"] = session.ask(Status).data
    if "login" in then:
        os.makedirs(f"/run/user/{os.getuid()}", mode=0o700)
    status = subprocess.check_output([*cli, "status", "--json"], env=others)
    told["other"] = json.loads(status)["pid"]
    subprocess.run([*cli, "stop"], env=others, check=True, stdout=subprocess.DEVNULL)
except DaemonError as error:
    told["error"] = str(error)
parents = {os.getpid(), os.getppid(), 1}
told["left"] = []
for pid in map(int, filter(str.isdecimal, os.listdir("/proc"))):
    try:
        with open(f"/proc/{pid}/stat") as file:
            state = file.read().rpartition(")")[2].split()[0]
        with open(f"/proc/{pid}/cmdline") as file:
            command = file.read().replace("\\0", " ")
    except OSError:
        continue
    if pid not in parents and state not in "ZX":
        told["left"].append(command)
print(json.dumps(told))
"""


@dataclass(frozen=True)
class Case:
    """One machine. ``setup`` is a shell script (``$TOP`` is a file system of the case's own, with a
    ``home`` in it), ``variables`` all that the caller's environment has beside PATH; ``$TOP``
    stands in them, too."""

    setup: str = ""
    variables: dict[str, str] = field(default_factory=dict)
    ordinary: bool = False
    then: str = ""


def kept() -> str:
    """This repository, where it lies in a folder that a bare machine has empty; else nothing."""
    return str(ROOT) if str(ROOT).startswith(tuple(f"{folder}/" for folder in _EMPTY)) else ""


def top() -> str:
    """A folder of the machine that a case may cover, because neither Python nor this repository
    lies in it.
    """
    needed = [str(ROOT), os.path.realpath(sys.executable), sys.prefix, sys.base_prefix]
    for covered in _EMPTY:
        if any(
            path.startswith(f"{covered}/") and not path.startswith(f"{ROOT}") for path in needed
        ):
            pytest.skip(f"Python lies in {covered}, which a bare machine has empty")
    for folder in ("/mnt", "/srv", "/media", "/opt"):
        if os.path.isdir(folder) and not any(path.startswith(f"{folder}/") for path in needed):
            return folder
    pytest.skip("Python lies in every folder that could be covered")


def why_not() -> str | None:
    """Why this machine has no namespaces to give, or None."""
    if shutil.which("unshare") is None:
        return "unshare (util-linux) is not installed"
    tried = subprocess.run(
        [*NAMESPACES, "mount", "-t", "tmpfs", "tmpfs", "/tmp"], capture_output=True, text=True
    )
    return None if tried.returncode == 0 else f"no namespaces: {tried.stderr.strip()}"


def first_call(case: Case) -> dict[str, Any]:
    """What came of it: ``returned`` by the program that was built, the daemon's ``status``, the
    process number of the daemon that an ``other`` process of the user finds; or the ``error``. And
    what was ``left`` running."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    settings = {"WARMCC_FALLBACK": "0", "WARMCC_PREWARM": "", "WARMCC_PREWARM_CUDA": "0"}
    given = {"PATH": os.environ["PATH"], **settings, **case.variables}
    script = _BOOT.format(
        ordinary=ORDINARY, setup=case.setup, then=case.then,
        as_user=f"unshare --user --map-user={ORDINARY}" if case.ordinary else "",
        variables=" ".join(f'"{name}={value}"' for name, value in given.items()),
    )  # fmt: skip
    environment = {
        "PATH": os.environ["PATH"], "EMPTY": " ".join(_EMPTY), "TOP": top(),
        "PYTHON": sys.executable, "CALL": _CALL, "KEEP": kept(),
    }  # fmt: skip
    done = subprocess.run(
        [*NAMESPACES, "sh", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        cwd="/",
    )
    assert done.stdout.startswith("{"), done
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {**told, "stderr": done.stderr}
