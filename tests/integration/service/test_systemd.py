"""The unit that starts the daemon at boot, run by a real systemd with all of its restrictions."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import machines
from tests.support.calls import module_source
from warmcc.client.cli.systemd import _text

CLIENT = f"""
import warmcc
module = warmcc.load_inline("tiny", {module_source()!r}, no_implicit_headers=True)
print(module.answer(), module.__file__)
"""


@pytest.fixture
def machine() -> Iterator[machines.Machine]:
    with machines.booted("WARMCC_PREWARM= WARMCC_PREWARM_CUDA=0") as one:
        yield one


@pytest.mark.slow
def test_boot_build_reload_crash_and_stop(machine: machines.Machine) -> None:
    def show(what: str) -> str:
        return machine.run("systemctl", "show", "--value", "-p", what, "warmcc@root").stdout.strip()

    machine.run("systemctl", "start", "warmcc@root")
    assert show("ActiveState") == "active"
    assert show("StatusText").startswith("warm; 0 building")

    client = [sys.executable, "-c", CLIENT]
    alone = {"WARMCC_AUTOSTART": "0", "WARMCC_FALLBACK": "0"}
    built = machine.run(*client, **alone).stdout.split()
    assert built[0] == "42"
    assert built[1].startswith("/var/cache/warmcc/root/store/artifacts/"), (
        "the client found the daemon of the boot"
    )

    pid = show("MainPID")
    machine.run("systemctl", "reload", "warmcc@root")
    assert (show("ActiveState"), show("MainPID")) == ("active", pid)

    machine.run("systemctl", "kill", "--signal=SIGKILL", "--kill-whom=main", "warmcc@root")
    machine.run(
        "sh",
        "-c",
        f"until [ $(systemctl show --value -p MainPID warmcc@root) -gt {pid} ]; do sleep 0.1; done",
    )
    machine.run("sh", "-c", "until [ -S /run/warmcc/root/daemon.sock ]; do sleep 0.1; done")
    assert machine.run(*client, **alone).stdout.split() == built, "the store of before"

    machine.run("systemctl", "stop", "warmcc@root")
    assert show("Result") == "success"
    assert machine.run("ls", "/run/warmcc").stdout == "", "nothing is left that a client could find"


def test_units_are_exposed_little_and_without_mistakes(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd is not installed")
    version = subprocess.run(
        ["systemd-analyze", "--version"], capture_output=True, text=True
    ).stdout.split()
    if int(version[1]) < 250:
        pytest.skip("this systemd looks at no unit that is not installed")
    for name in machines.UNITS:
        (tmp_path / name.replace("@", "@root")).write_text(_text(name))
    unit = str(tmp_path / "warmcc@root.service")
    checked = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--threshold=20", unit],
        capture_output=True,
        text=True,
    )
    assert checked.returncode == 0, checked.stdout
    # It also wants a manager's folders of its own, which root has here and a user has after logging
    # in.
    checked = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True)
    assert checked.stderr == ""


def test_install_and_uninstall_a_users_units(tmp_path: Path) -> None:
    """Without a systemd to talk to, the units are put in place, and what is left to do is said."""
    folder = tmp_path / "config" / "systemd" / "user"
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("WARMCC_")},
        "XDG_CONFIG_HOME": str(tmp_path / "config"), "PATH": str(tmp_path),
        "CXX": '/opt/my "g++" 100%', "LIBRARY_PATH": "/opt/lib",
        "WARMCC_RUNTIME_DIR": str(tmp_path / "run"),
    }  # fmt: skip

    def warmcc(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "warmcc.client.cli", *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")

    shown = warmcc("install-service", "--dry-run")
    assert (shown.returncode, folder.exists()) == (0, False)
    done = warmcc("install-service")
    assert done.returncode == 3
    assert (
        "on a machine with systemd, run: systemctl --user enable --now warmcc.socket" in done.stderr
    )
    assert {path.name for path in folder.iterdir()} == {"warmcc.service", "warmcc.socket"}
    unit = (folder / "warmcc.service").read_text()
    assert f'ExecStart="{sys.executable}" -m warmcc.daemon' in unit
    assert r'Environment="CXX=/opt/my \"g++\" 100%%"' in unit
    assert r'Environment="LIBRARY_PATH=/opt/lib"' in unit
    assert "@" not in unit.replace("warmcc@", "")
    assert warmcc("uninstall-service").returncode == 0
    assert list(folder.iterdir()) == []
    again = warmcc("uninstall-service")
    assert (again.returncode, "nothing to remove" in again.stderr) == (0, True)
    nobody = warmcc("install-service", "--system", "--for", "no-such-user")
    assert (nobody.returncode, "unknown user 'no-such-user'" in nobody.stderr) == (3, True)
