"""Wherever a first call is made, the daemon serves it, and every other process of the user finds
the same daemon; where that cannot be, one message says which variable to set."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest

from tests.support.anywhere import ORDINARY, Case, first_call, top
from tests.support.daemons import Daemon

HOME = {"HOME": "$TOP/home"}
CACHE = {"WARMCC_CACHE_DIR": "$TOP/cache"}
LOGIN = "mkdir -p /run/user; mkdir -m 700 /run/user/{uid}"
READ_ONLY = "mount -o remount,ro,bind"
LONG = "h" * 100
BY_HAND = """
env -i "PATH=$PATH" "HOME=$TOP/home" TMPDIR=/proc XDG_RUNTIME_DIR=/proc WARMCC_PREWARM= \\
  "$PYTHON" -m warmcc.daemon &
while [ ! -S /tmp/warmcc-0/daemon.sock ]; do kill -0 $!; sleep 0.05; done
"""

# Each with the folder in which its socket has to be.
SERVED = {
    "root in a container": (Case(variables=HOME), "/tmp/warmcc-0"),
    "a user in a container": (Case(variables=HOME, ordinary=True), f"/tmp/warmcc-{ORDINARY}"),
    "nothing but PATH": (Case(), "/tmp/warmcc-0"),
    "nothing but PATH, a user": (Case(ordinary=True), f"/tmp/warmcc-{ORDINARY}"),
    "a login": (
        Case(LOGIN.format(uid=ORDINARY), {**HOME, "XDG_RUNTIME_DIR": f"/run/user/{ORDINARY}"},
            ordinary=True),
        f"/run/user/{ORDINARY}/warmcc",
    ),
    "cron beside a login": (
        Case(LOGIN.format(uid=ORDINARY), HOME, ordinary=True),
        f"/run/user/{ORDINARY}/warmcc",
    ),
    "a login comes later": (Case(variables=HOME, ordinary=True, then="login"),
        f"/tmp/warmcc-{ORDINARY}"),
    "the variables of another machine": (
        Case(variables={**HOME, "XDG_RUNTIME_DIR": "/run/user/12345", "TMPDIR": "/scratch/job/7"}),
        "/tmp/warmcc-0",
    ),
    "a runtime folder of its own": (
        Case("mkdir -m 700 $TOP/mine",
            {**HOME, "XDG_RUNTIME_DIR": "$TOP/mine", "TMPDIR": "$TOP/mine"}),
        "/tmp/warmcc-0",
    ),
    "a daemon that was started by hand": (Case(BY_HAND, {**HOME, "WARMCC_AUTOSTART": "0"}),
        "/tmp/warmcc-0"),
    "/run is read-only": (
        Case(f"{LOGIN.format(uid=0)}; mount -o remount,ro /run",
            {**HOME, "XDG_RUNTIME_DIR": "/run/user/0"}),
        "/tmp/warmcc-0",
    ),
    "/tmp is read-only": (Case("mount -o remount,ro /tmp", HOME), "/var/tmp/warmcc-0"),
    "/tmp and /var/tmp are open to all": (Case("chmod 777 /tmp /var/tmp", HOME),
        "/dev/shm/warmcc-0"),
    "a link in its place": (Case("mkdir -m 700 $TOP/x; ln -s $TOP/x /tmp/warmcc-0", HOME),
        "/var/tmp/warmcc-0"),
    "/tmp is noexec": (Case("mount -o remount,noexec /tmp", HOME), "/tmp/warmcc-0"),
    "a home of 100 characters": (
        Case(f"mkdir -m 700 $TOP/{LONG}", {"HOME": f"$TOP/{LONG}"}), "/tmp/warmcc-0",
    ),
    "a home that is read-only": (
        Case(f"mount --bind $TOP/home $TOP/home; {READ_ONLY} $TOP/home", {**HOME, **CACHE}),
        "/tmp/warmcc-0",
    ),
    "a user of whom nothing is known": (
        Case("umount /etc/passwd; mount --bind /dev/null /etc/passwd", CACHE, ordinary=True),
        f"/tmp/warmcc-{ORDINARY}",
    ),
}  # fmt: skip

# Each with what the message has to say.
TOLD = {
    "a home that is read-only": (
        Case(f"mount --bind $TOP/home $TOP/home; {READ_ONLY} $TOP/home", HOME),
        [
            "/home/.cache",
            "Read-only file system",
            "Set WARMCC_CACHE_DIR to a writable folder that you own.",
        ],
    ),
    "a cache that is read-only": (
        Case(
            f"mkdir -m 700 $TOP/cache; mount --bind $TOP/cache $TOP/cache; {READ_ONLY} $TOP/cache",
            {**HOME, **CACHE},
        ),
        ["/cache cannot be used: it cannot be written", "Set WARMCC_CACHE_DIR"],
    ),
    "a cache that is noexec": (
        Case(
            "mkdir -m 700 $TOP/cache; mount -t tmpfs -o noexec,mode=700 tmpfs $TOP/cache",
            {**HOME, **CACHE},
        ),
        ["/cache cannot be used", "mounted noexec", "Set WARMCC_CACHE_DIR"],
    ),
    "a home that does not exist": (
        Case(variables={"HOME": "/proc/nonexistent"}),
        ["/proc/nonexistent", "Set WARMCC_CACHE_DIR"],
    ),
    "a user of whom nothing is known": (
        Case("umount /etc/passwd; mount --bind /dev/null /etc/passwd", ordinary=True),
        ["/.cache", "Set WARMCC_CACHE_DIR"],
    ),
    "no folder for a socket": (
        Case(
            "for folder in /run /tmp /var/tmp /dev/shm; do mount -o remount,ro $folder; done", HOME
        ),
        ["no folder for the daemon's socket", "/dev/shm/warmcc-0", "Set WARMCC_RUNTIME_DIR"],
    ),
    "a runtime folder whose name is too long": (
        Case(variables={**HOME, "WARMCC_RUNTIME_DIR": f"$TOP/{LONG}"}),
        ["longer than 107 bytes", "Set WARMCC_RUNTIME_DIR to a shorter path"],
    ),
}


# Each starts a daemon and imports torch twice; these stand for the others in `make test`.
OFTEN = ("root in a container", "nothing but PATH, a user")


@pytest.mark.parametrize(
    "name",
    [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in SERVED],
)
def test_the_first_call_is_served(name: str) -> None:
    case, place = SERVED[name]
    told = first_call(case)
    assert "error" not in told, told["error"]
    assert told["returned"] == 42
    status = told["status"]
    assert status["socket"] == f"{place}/daemon.sock"
    assert (status["requests"]["misses"], status["requests"]["fallbacks"]) == (1, {})
    assert told["other"] == status["pid"], "a process with other variables finds another daemon"
    assert told["left"] == []
    assert status["store"]["path"].startswith(top())


@pytest.mark.parametrize("name", TOLD)
def test_where_it_cannot_be_one_message_says_what_to_set(name: str) -> None:
    case, words = TOLD[name]
    told = first_call(case)
    assert "returned" not in told
    for word in words:
        assert word in told["error"]
    assert told["error"].count("Set WARMCC_") == 1, "one thing to do"
    assert "Traceback" not in told["error"] + told["stderr"]
    assert told["left"] == []


@pytest.mark.slow
def test_a_daemon_that_nobody_can_reach_ends(fresh_daemon: Callable[..., Daemon]) -> None:
    """A logout removes /run/user/UID with the socket in it."""
    daemon = fresh_daemon()
    shutil.rmtree(daemon.runtime_dir)
    assert daemon.process is not None
    assert daemon.process.wait(60) == 0
    assert "no longer exists, clients cannot connect" in daemon.log()
