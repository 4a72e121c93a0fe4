"""``warmcc`` as the blocks of the documentation call it in tests.

Commands that start, stop or empty a daemon get one with folders of its own; those that run until
somebody ends them (``watch``, ``logs --follow``) are interrupted once they have shown what they are
for; all others run as they are.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

COMMAND = [sys.executable, "-m", "warmcc.client.cli"]
_WAIT_SECONDS = 120.0


def own_environment() -> dict[str, str]:
    """Of a daemon that is this page's alone; it warms up nothing."""
    own = {
        f"WARMCC_{name}": os.environ[f"OWN_{name}"]
        for name in ("RUNTIME_DIR", "CACHE_DIR", "STATE_DIR")
    }
    quiet = {"WARMCC_PREWARM": "", "WARMCC_PREWARM_IDLE": "", "WARMCC_PREWARM_CUDA": "0"}
    return {**os.environ, **own, **quiet, "WARMCC_AUTOSTART": "1"}


def end_own_daemon() -> None:
    if os.path.exists(os.path.join(os.environ["OWN_RUNTIME_DIR"], "daemon.sock")):
        subprocess.run([*COMMAND, "stop"], env=own_environment(), check=True)


def main(words: list[str]) -> int:
    changes_a_daemon = words[:1] in (["start"], ["stop"]) or words[:2] == ["cache", "clear"]
    environment = own_environment() if changes_a_daemon else dict(os.environ)
    if words[:1] == ["watch"]:
        runs = any(word in words for word in ("--run", "--call", "--pytest"))
        as_json = "--json" in words
        if runs:
            return _interrupted(words, environment, '"code": 0' if as_json else "ended with 0")
        return _interrupted(words, environment, '"event": "built"' if as_json else ": built in")
    if words[:1] == ["logs"] and "--follow" in words:
        return _interrupted(words, environment, "")
    return subprocess.run([*COMMAND, *words], env=environment).returncode


def _interrupted(words: list[str], environment: dict[str, str], sign: str) -> int:
    """Interrupt it once its output has the sign; 1 when that does not come."""
    child = subprocess.Popen(
        [*COMMAND, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    late = threading.Timer(_WAIT_SECONDS if sign else 3.0, child.send_signal, [signal.SIGINT])
    late.start()
    seen = not sign
    assert child.stdout is not None
    for line in child.stdout:
        print(line, end="", flush=True)
        if sign and sign in line:
            seen = True
            child.send_signal(signal.SIGINT)
            break
    for line in child.stdout:
        print(line, end="", flush=True)
    code = child.wait()
    late.cancel()
    return 0 if seen and code in (0, 130) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
