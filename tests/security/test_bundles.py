"""Bundles that are unsigned, another user's, or written and killed at the same time."""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

import warmcc
from tests.support.bundling import (
    Target,
    edited,
    hidden,
    members,
    needs,
    request,
    script,
    written,
)
from tests.support.daemons import Daemon
from warmcc import digest, signing
from warmcc.client.bundles import archive, finding, layout
from warmcc.client.bundles.layout import CHECK, INDEX, SIGNATURE
from warmcc.client.connection import session
from warmcc.errors import BundleError, ConfigError, OfflineError

NOBODY = 65534
needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root may be somebody else: run make test as root"
)


# ---------------------------------------------------------------------- signatures


def keys(tmp_path: Path, *names: str) -> list[tuple[Path, str]]:
    return [(path, signing.make_key(str(path))) for path in (tmp_path / name for name in names)]


def test_only_bundles_of_trusted_keys(
    bundle: Path, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (own, public), (other, _) = keys(tmp_path, "own.pem", "other.pem")
    nothing: Callable[[object], None] = lambda index: None  # noqa: E731
    signed = edited(bundle, tmp_path / "signed.tar.gz", nothing, own)
    wrong = edited(bundle, tmp_path / "wrong.tar.gz", nothing, other)
    changed = dict(members(signed))
    index = changed[INDEX].replace(b'"GLIBC"', b'"CXXABI"').replace(b"fuzz_two", b"fuzz_2wo")
    changed |= {INDEX: index, CHECK: digest.of_bytes(index).encode()}
    monkeypatch.setenv("WARMCC_BUNDLE_TRUST", public)
    for path, said in (
        (
            bundle,
            "is not signed, and bundle_trust takes only what is signed with ed25519:",
        ),
        (wrong, "was changed, or is not signed with a key of bundle_trust"),
        (written(list(changed.items()), tmp_path / "c.tar"), "was changed, or is not signed"),
    ):
        with pytest.raises(BundleError, match=said):
            warmcc.unpack(path)
        assert os.listdir(place) == []
    assert warmcc.unpack(signed).signer == public
    assert finding.answer(request("fuzz_one", 1)) is not None


def test_the_signature_is_checked_again_at_load(
    bundle: Path, tmp_path: Path, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was unpacked before a key was trusted, or was changed since."""
    ((own, public),) = keys(tmp_path, "own.pem")
    signed = edited(bundle, tmp_path / "signed.tar.gz", needs(), own)
    unsigned = Path(warmcc.unpack(bundle).path)
    assert finding.answer(request("fuzz_one", 1)) is not None
    monkeypatch.setenv("WARMCC_BUNDLE_TRUST", public)
    with pytest.raises(OfflineError, match="is not signed, and bundle_trust takes only"):
        finding.answer(request("fuzz_one", 1))
    unpacked = Path(warmcc.unpack(signed).path)
    assert finding.answer(request("fuzz_one", 1)) is not None
    for path in sorted(unsigned.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    unsigned.rmdir()
    (unpacked / SIGNATURE).chmod(0o644)
    (unpacked / SIGNATURE).write_bytes(bytes(64))
    with pytest.raises(OfflineError, match="was changed, or is not signed with a key"):
        finding.answer(request("fuzz_one", 1))


def test_keys(tmp_path: Path, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = Target(tmp_path / "target", WARMCC_OFFLINE="0")
    path = tmp_path / "key.pem"
    made = target.warmcc("keygen", str(path))
    public = made.stdout.strip()
    assert public.startswith("ed25519:") and path.stat().st_mode & 0o777 == 0o600
    again = target.warmcc("keygen", str(path))
    assert (again.returncode, again.stdout) == (3, "") and "exists already" in again.stderr
    assert signing.Signer(str(path)).public == public
    path.chmod(0o644)
    with pytest.raises(ConfigError, match="is open to others; run: chmod 600"):
        signing.Signer(str(path))
    (tmp_path / "none.pem").write_text("no key")
    (tmp_path / "none.pem").chmod(0o600)
    with pytest.raises(ConfigError, match="is no private key"):
        signing.Signer(str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        signing.Signer(str(tmp_path / "missing.pem"))
    monkeypatch.setenv("WARMCC_BUNDLE_TRUST", "ed25519:short")
    with pytest.raises(ConfigError, match="bundle_trust: 'ed25519:short' is no public key"):
        warmcc.unpack(bundle, tmp_path / "to")
    monkeypatch.setenv("WARMCC_BUNDLE_TRUST", public)
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)
    with pytest.raises(BundleError, match=r"pip install 'warmcc\[signing\]'"):
        warmcc.unpack(bundle, tmp_path / "to")


def test_a_configured_key_signs(
    daemon: Daemon, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ((own, public),) = keys(tmp_path, "own.pem")
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    session.forget()
    monkeypatch.setenv("WARMCC_BUNDLE_KEY", str(own))
    assert warmcc.pack(tmp_path / "s.tar.xz", ["fuzz_one"]).signer == public
    monkeypatch.setenv("WARMCC_BUNDLE_TRUST", public)
    assert warmcc.unpack(tmp_path / "s.tar.xz", tmp_path / "to").signer == public
    session.forget()


# ---------------------------------------------------------------------- other users


@needs_root
def test_a_folder_of_another_user(bundle: Path, place: Path) -> None:
    place.mkdir(mode=0o700)
    os.chown(place, NOBODY, NOBODY)
    with pytest.raises(BundleError, match=f"belongs to uid {NOBODY}, not to you"):
        warmcc.unpack(bundle)
    with pytest.raises(OfflineError, match="can be written by other users, so bundles in it"):
        finding.answer(request("fuzz_one", 1))


def test_a_folder_that_others_can_write(bundle: Path, place: Path) -> None:
    warmcc.unpack(bundle)
    place.chmod(0o777)
    with pytest.raises(OfflineError, match="can be written by other users, so bundles in it"):
        finding.answer(request("fuzz_one", 1))
    with pytest.raises(BundleError, match=r"is open to others \(mode 777\)"):
        warmcc.unpack(bundle)


AS_ANOTHER = """
import os, sys
import torch, warmcc
from warmcc.client.bundles import finding, identity
from warmcc.client.calls import api
from warmcc.client.loading import loader
os.setgroups([]); os.setgid({uid}); os.setuid({uid})
"""


@needs_root
def test_another_user_loads_what_root_has_unpacked(bundle: Path) -> None:
    """A folder of root's that others may only read, as in an image of a container."""
    with tempfile.TemporaryDirectory(prefix="wcc-", dir="/tmp") as folder:
        shared = Path(folder, "shared")
        warmcc.unpack(bundle, shared)
        for path in (shared.parent, shared):
            path.chmod(0o755)
        target = Target(Path(folder, "target"), WARMCC_BUNDLES=str(shared))
        done = target.run("-c", AS_ANOTHER.format(uid=NOBODY) + script("fuzz_two", 2))
        assert done.stdout.startswith(f"2 {shared}"), done.stderr


# ---------------------------------------------------------------------- at the same time


def test_many_unpack_the_same(bundle: Path, tmp_path: Path) -> None:
    target = Target(tmp_path / "target")
    words = [sys.executable, "-m", "warmcc.client.cli", "unpack", str(bundle), "--json"]
    running = [
        subprocess.Popen(words, env=target.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(8)
    ]
    said = [one.communicate(timeout=120)[0] for one in running]
    assert [one.returncode for one in running] == [0] * 8
    (path,) = {msgspec.json.decode(text)["path"] for text in said}
    assert [str(target.bundles / name) for name in os.listdir(target.bundles)] == [path]
    assert target.run("-c", script("fuzz_one", 1)).stdout.startswith("1 ")


def test_a_kill_leaves_nothing_visible(bundle: Path, tmp_path: Path) -> None:
    target = Target(tmp_path / "target")
    large = random.Random(0).randbytes(1 << 20) * 128
    found = {name: data for name, data in members(bundle) if name.startswith("files/")}
    name = digest.of_bytes(large)

    def enlarge(index: dict[str, list[dict[str, object]]]) -> None:
        index["entries"][1].update(file=name, size=len(large))

    first = edited(bundle, tmp_path / "index.tar", enlarge)
    kept = msgspec.json.decode(dict(members(first))[INDEX], type=layout.Index).files()
    found = {f"files/{one}": large if one == name else found[f"files/{one}"] for one in kept}
    head = [(one, data) for one, data in members(first) if not one.startswith("files/")]
    path = written([*head, *found.items()], tmp_path / "large.tar")
    words = [sys.executable, "-m", "warmcc.client.cli", "unpack", str(path)]
    killed = 0
    for size in (0, 1 << 20, 50 << 20, 100 << 20):
        before = set(target.bundles.glob(".*"))
        process = subprocess.Popen(words, env=target.environment, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            for folder in set(target.bundles.glob(".*")) - before:
                with contextlib.suppress(FileNotFoundError):
                    if (folder / name).stat().st_size >= size:
                        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        visible = [one for one in os.listdir(target.bundles) if not one.startswith(".")]
        assert visible == [] or process.returncode == 0
        assert target.warmcc("bundles", "ls").returncode == 0
    assert killed >= 2 and hidden(target.bundles)
    assert target.warmcc("unpack", str(path)).returncode == 0
    assert hidden(target.bundles) == [] and len(os.listdir(target.bundles)) == 1


def test_reading_bundles_needs_no_compiler_of_archives() -> None:
    """Of the reader: what tarfile writes for the same members is what warmcc writes."""
    out = io.BytesIO()
    writer = archive.Writer(out, ".tar")
    writer.add("index.json", 3, iter([b"abc"]))
    writer.close()
    with tarfile.open(fileobj=io.BytesIO(out.getvalue())) as tar:
        (one,) = tar.getmembers()
        assert (one.name, one.size, one.mtime, one.uid, one.mode) == ("index.json", 3, 0, 0, 0o644)
