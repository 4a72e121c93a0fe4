"""``warmcc doctor`` on a machine that is well, and on ones that are not; and the figures for
Prometheus.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
import tarfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
import zmq

from tests.support.calls import Connection, module_source, request
from tests.support.daemons import Daemon
from warmcc.protocol import Built


def doctor(daemon: Daemon, *words: str, **variables: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Its exit code, and what it found by title (the last of each)."""
    done = subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", "doctor", "--json", *words],
        env={**os.environ, **daemon.environment, **variables}, capture_output=True, text=True,
        cwd="/", timeout=120,
    )  # fmt: skip
    assert done.stdout.startswith("["), done
    return done.returncode, {one["title"]: one for one in json.loads(done.stdout)}


@pytest.fixture
def extensions(tmp_path: Path) -> dict[str, str]:
    return {"TORCH_EXTENSIONS_DIR": str(tmp_path / "extensions")}


def test_a_machine_that_is_well(
    fresh_daemon: Callable[..., Daemon], extensions: dict[str, str]
) -> None:
    code, found = doctor(fresh_daemon(), **extensions)
    assert [one for one in found.values() if one["state"] == "bad"] == []
    assert code == 0
    assert " ms for an extension that was built before" in found["first hit"]["text"]
    for title in (
        "Python",
        "torch",
        "compiler",
        "ninja",
        "linker",
        "ccache",
        "CUDA",
        "settings",
        "cache",
        "disk",
    ):
        assert found[title]["text"]


@pytest.mark.slow
def test_what_is_wrong_is_said_and_mended(
    fresh_daemon: Callable[..., Daemon], extensions: dict[str, str], tmp_path: Path
) -> None:
    daemon = fresh_daemon()
    lock = tmp_path / "extensions" / "mine" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    os.utime(lock, (time.time() - 7200,) * 2)
    daemon.state_dir.chmod(0o755)
    (daemon.folder / "config.toml").write_text("store_siez = 1\n")
    code, found = doctor(daemon, **extensions)
    assert code == 1
    assert "120 minutes old" in found["stock locks"]["text"]
    assert found["log"]["advice"] == f"chmod 700 {daemon.state_dir}"
    assert "did you mean 'store_size'" in found["settings"]["text"]

    code, found = doctor(daemon, "--fix", **extensions)
    assert code == 1, "what a setting should be is for its author to say"
    assert not lock.exists()
    assert daemon.state_dir.stat().st_mode & 0o777 == 0o700
    assert (found["stock locks"]["state"], found["log"]["state"]) == ("ok", "ok")


def test_a_cache_that_cannot_be_is_said_with_what_to_set() -> None:
    place = Daemon()
    try:
        code, found = doctor(place, WARMCC_AUTOSTART="1", WARMCC_CACHE_DIR="/proc/nonexistent")
    finally:
        place.discard()
    assert code == 1
    assert "the folder /proc/nonexistent cannot be used" in found["daemon"]["text"]
    assert found["daemon"]["advice"] == "Set WARMCC_CACHE_DIR to a writable folder that you own."


@pytest.mark.slow
def test_a_lock_that_is_young_is_left_alone(
    fresh_daemon: Callable[..., Daemon], extensions: dict[str, str], tmp_path: Path
) -> None:
    lock = tmp_path / "extensions" / "py311_cpu" / "mine" / "lock"
    lock.parent.mkdir(parents=True)
    lock.touch()
    code, _ = doctor(fresh_daemon(), "--fix", **extensions)
    assert (code, lock.exists()) == (0, True)


def test_no_daemon_no_compiler_no_toolkit(extensions: dict[str, str], tmp_path: Path) -> None:
    daemon = Daemon()
    try:
        wrong: dict[str, Any] = {"CXX": "no-such-compiler", "CUDA_HOME": str(tmp_path)}
        code, found = doctor(daemon, **extensions, **wrong)
        assert code == 1
        assert "no-such-compiler is not in PATH" in found["compiler"]["text"]
        assert "set CUDA_HOME to the toolkit, or unset it" in found["CUDA"]["advice"]
        assert (found["daemon"]["state"], found["daemon"]["advice"]) == (
            "bad",
            "warmcc start, and see: warmcc logs",
        )
    finally:
        daemon.discard()


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        return str(answer.read().decode())


@pytest.mark.slow
def test_metrics(
    fresh_daemon: Callable[..., Daemon], context: zmq.Context[zmq.Socket[bytes]]
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    daemon = fresh_daemon(metrics_port=port)
    connection = Connection(daemon, context)
    assert isinstance(connection.build(request()), Built)
    assert isinstance(connection.build(request()), Built)
    told = scrape(port)
    assert 'warmcc_requests_total{outcome="hits"} 1.0' in told
    assert 'warmcc_requests_total{outcome="misses"} 1.0' in told
    assert "warmcc_store_limit_bytes" in told
    other = fresh_daemon(metrics_port=port)
    assert f"no metrics on port {port}: Address already in use" in other.log()
    assert isinstance(Connection(other, context).build(request()), Built)
    listening = [one.laddr for one in psutil.Process(daemon.pid).net_connections("tcp")]
    assert listening == [("127.0.0.1", port)], "nobody outside this machine is answered"


@pytest.mark.slow
def test_a_report_tells_what_happened_and_no_secrets(
    fresh_daemon: Callable[..., Daemon],
    extensions: dict[str, str],
    tmp_path: Path,
    context: zmq.Context[Any],
) -> None:
    daemon = fresh_daemon()
    built = Connection(daemon, context).build(
        request(
            cpp_sources=[module_source(1, "told") + "// in the source"],
            name="told",
            module_name="told",
            extra_cflags=["-DKEY=hunter2"],
        )
    )
    assert isinstance(built, Built)
    time.sleep(0.5)  # the log is written by a thread
    place = tmp_path / "report.tar.gz"
    doctor(
        daemon,
        "--report",
        str(place),
        **extensions,
        WARMCC_SHARED_STORE=f"{Path.home()}/api_key=hunter3",
    )
    with tarfile.open(place) as archive:
        parts = {
            name: (archive.extractfile(name) or io.BytesIO()).read().decode()
            for name in archive.getnames()
        }
    assert set(parts) == {
        f"warmcc-report/{name}"
        for name in ("doctor.txt", "settings.json", "status.json", "requests.jsonl", "daemon.log")
    }
    whole = "".join(parts.values())
    assert '"told"' in parts["warmcc-report/requests.jsonl"]
    assert "-DKEY=" in whole
    assert "ok: Python: " in whole
    assert json.loads(parts["warmcc-report/status.json"])["requests"]["total"] >= 1
    for secret in ("hunter2", "hunter3", "in the source", f"{Path.home()}/", socket.gethostname()):
        assert secret not in whole


@pytest.mark.slow
def test_a_report_that_cannot_be_written_says_so(fresh_daemon: Callable[..., Daemon]) -> None:
    daemon = fresh_daemon()
    done = subprocess.run(
        [sys.executable, "-m", "warmcc.client.cli", "doctor", "--report",
            "/nonexistent/report.tar.gz"],
        env={**os.environ, **daemon.environment}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode != 0
    assert "/nonexistent/report.tar.gz cannot be written: No such file or directory" in done.stderr
    assert "Traceback" not in done.stderr
