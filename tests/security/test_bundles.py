"""Bundles that are hostile, damaged, unsigned, or written and killed at the same time."""

from __future__ import annotations

import io
import os
import random
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

import warmcc
from tests.support.bundling import (
    Members,
    Target,
    edited,
    hidden,
    members,
    needs,
    request,
    script,
    tar_of,
    written,
)
from tests.support.calls import module_source
from tests.support.daemons import Daemon
from warmcc import digest
from warmcc.client.bundles import archive, finding, layout, signing
from warmcc.client.bundles.layout import CHECK, INDEX, SIGNATURE
from warmcc.client.connection import session
from warmcc.errors import BundleError, ConfigError, OfflineError

NOBODY = 65534
needs_root = pytest.mark.skipif(
    os.getuid() != 0, reason="only root may be somebody else: run make test as root"
)
NAMES = {"fuzz_one": 1, "fuzz_two": 2}


@pytest.fixture(scope="module")
def bundle(daemon: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A bundle of two artifacts."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in daemon.environment.items():
            patch.setenv(name, value)
        session.forget()
        made = [
            warmcc.build_inline(name, module_source(answer, name), no_implicit_headers=True)
            for name, answer in NAMES.items()
        ]
        path = tmp_path_factory.mktemp("bundle") / "two.tar"
        warmcc.pack(path, made)
        yield path
        session.forget()


@pytest.fixture(scope="module")
def contents(bundle: Path) -> dict[str, bytes]:
    """The artifacts by their names."""
    found = dict(members(bundle))
    entries = msgspec.json.decode(found[INDEX], type=layout.Index).entries
    return {entry.name: found[f"files/{entry.file}"] for entry in entries}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where bundles are unpacked, and offline."""
    monkeypatch.setenv("WARMCC_BUNDLES", str(tmp_path / "bundles"))
    monkeypatch.setenv("WARMCC_OFFLINE", "1")
    return tmp_path / "bundles"


def is_right(contents: dict[str, bytes]) -> bool:
    """Whether both calls are refused, or get the code that was built for them."""
    found = False
    for name, answer in NAMES.items():
        try:
            built = finding.answer(request(name, answer))
        except OfflineError:
            continue
        assert built is not None
        assert Path(built.path).read_bytes() == contents[name], "WRONG CODE"
        found = True
    return found


# ---------------------------------------------------------------------- damage


def flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice([1, 1, 2, 20])):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def longer(data: bytes, chance: random.Random) -> bytes:
    return data + chance.randbytes(chance.choice([1, 512, 1024, 10240]))


def moved(data: bytes, chance: random.Random) -> bytes:
    """A piece of it elsewhere."""
    start, size = chance.randrange(len(data)), chance.choice([1, 64, 512, 4096])
    piece, rest = data[start : start + size], data[:start] + data[start + size :]
    at = chance.randrange(len(rest))
    return rest[:at] + piece + rest[at:]


def other_members(given: Members, chance: random.Random) -> Members:
    """Members that are swapped, doubled, left out, exchanged, or changed within."""
    found = list(given)
    one, two = chance.sample(range(len(found)), 2)
    way = chance.randrange(6)
    if way == 0:
        found[one], found[two] = found[two], found[one]
    elif way == 1:
        found.insert(two, found[one])
    elif way == 2:
        del found[one]
    elif way == 3:
        (name, data), (other, content) = found[one], found[two]
        found[one], found[two] = (name, content), (other, data)
    elif way == 4:
        found[one] = (found[one][0], flipped(found[one][1], chance))
    else:
        found[one] = (flipped(found[one][0].encode(), chance).decode("latin-1"), found[one][1])
    return found


def other_index(given: Members, chance: random.Random) -> Members:
    """An index that is changed with care: its digest fits, and often it is one still."""
    found = dict(given)
    index = msgspec.json.decode(found[INDEX])
    entry, other = chance.sample(index["entries"], 2)
    way = chance.randrange(6)
    if way == 0:
        entry["key"], other["key"] = other["key"], entry["key"]
    elif way == 1:
        entry["parts"] = other["parts"]
    elif way == 2:
        entry["file"] = chance.randbytes(32).hex()
    elif way == 3:
        entry["size"] = chance.choice([0, -1, 1, entry["size"] + 512, 1 << 40])
    elif way == 4:
        entry["file_name"] = chance.choice(["../x.so", "/etc/x", "", ".", "a\0b", "x" * 300])
    else:
        entry[chance.choice(list(entry))] = chance.choice([None, 5, "x", [], {}])
    data = msgspec.json.encode(index)
    changed = {**found, INDEX: data, CHECK: digest.of_bytes(data).encode()}
    return list(changed.items())


def damaged(bundle: Path, chance: random.Random, folder: Path) -> Path:
    """The bundle, damaged in one way."""
    whole, form = bundle.read_bytes(), chance.choice([".tar", ".tar.gz", ".tar.xz", ".tar.zst"])
    to = folder / f"damaged{form}"
    way = chance.randrange(4)
    if way == 0:
        to.write_bytes(chance.choice([flipped, cut, longer, moved])(whole, chance))
    elif way == 1:
        written(members(bundle), to)
        to.write_bytes(chance.choice([flipped, cut, longer, moved])(to.read_bytes(), chance))
    else:
        change = other_members if way == 2 else other_index
        try:
            written(change(members(bundle), chance), to)
        except (UnicodeError, ValueError):  # a name that no archive can have
            to.write_bytes(cut(whole, chance))
    return to


def test_a_damaged_bundle_never_loads_wrong_code(
    bundle: Path, contents: dict[str, bytes], tmp_path: Path, place: Path
) -> None:
    """400 archives: refused without a trace, or (where no byte that counts was changed) right."""
    refused = 0
    for number in range(400):
        chance = random.Random(number)
        path = damaged(bundle, chance, tmp_path)
        try:
            warmcc.unpack(path)
        except BundleError:
            refused += 1
            assert os.listdir(place) == [], number
            continue
        assert is_right(contents), number
        for one in os.listdir(place):
            (place / one).rename(tmp_path / f"seen-{number}")
    assert refused > 350


def test_a_damaged_folder_never_loads_wrong_code(
    bundle: Path, contents: dict[str, bytes], place: Path
) -> None:
    """200 changes of what is unpacked; unpacking again repairs each."""
    unpacked = Path(warmcc.unpack(bundle).path)
    files = [path for path in sorted(unpacked.rglob("*")) if path.is_file()]
    assert is_right(contents) and len(files) == 3
    for number in range(200):
        chance = random.Random(number)
        path, other = chance.sample(files, 2)
        before = path.read_bytes()
        way = chance.randrange(5)
        path.chmod(0o644)
        if way == 0:
            path.unlink()
            path.symlink_to(other)
        elif way == 1:
            path.unlink()
        else:
            path.write_bytes(
                [flipped(before, chance), cut(before, chance), other.read_bytes()][way - 2]
            )
        is_right(contents)
        assert warmcc.unpack(bundle).path == str(unpacked)
        assert path.read_bytes() == before and not path.is_symlink()
    assert is_right(contents)


def test_what_changes_after_it_was_checked_is_checked_again(
    bundle: Path, contents: dict[str, bytes], place: Path
) -> None:
    unpacked = Path(warmcc.unpack(bundle).path)
    wanted = request("fuzz_one", 1)
    time.sleep(1.1)  # so that the check is remembered
    for _ in range(2):
        built = finding.answer(wanted)
    assert built is not None
    path = Path(built.path)
    found, data = path.stat(), path.read_bytes()
    path.chmod(0o644)
    path.write_bytes(bytes([data[0], *reversed(data[1:])]))
    os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))
    with pytest.raises(OfflineError, match="is damaged; unpack the bundle again"):
        finding.answer(wanted)
    assert Path(warmcc.unpack(bundle).path) == unpacked
    assert finding.answer(wanted) is not None


# ---------------------------------------------------------------------- hostile archives


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


@pytest.mark.parametrize(
    "planted",
    [
        member("../planted"), member("/tmp/planted"), member("files/../../planted"),
        member("files/link", tarfile.SYMTYPE, "/etc/passwd"),
        member("index.json", tarfile.LNKTYPE, "/etc/passwd"),
        member("files/device", tarfile.CHRTYPE), member("files/pipe", tarfile.FIFOTYPE),
        member("files/", tarfile.DIRTYPE), member("x" * 300),
    ],
    ids=lambda one: f"{one.name[:20]}-{one.type.decode()}",
)  # fmt: skip
@pytest.mark.parametrize("at", ["first", "last"])
def test_hostile_members(
    bundle: Path, tmp_path: Path, place: Path, planted: tarfile.TarInfo, at: str
) -> None:
    good = [(member(name), data) for name, data in members(bundle)]
    given = [(planted, b"x"), *good] if at == "first" else [*good, (planted, b"x")]
    path = tmp_path / "hostile.tar"
    path.write_bytes(tar_of(given))
    with pytest.raises(BundleError, match="not a bundle, or a damaged one"):
        warmcc.unpack(path)
    assert os.listdir(place) == [] and not (tmp_path / "planted").exists()


def test_a_bomb(tmp_path: Path, place: Path) -> None:
    """A small file that becomes a large one: sizes are bounded by the index, the index's by a
    constant, and both before anything is written."""
    path = tmp_path / "bomb.tar.gz"
    with open(path, "wb") as file:
        out = archive.Writer(file, ".tar.gz")
        zeros = bytes(1 << 20)
        out.add(INDEX, 80 << 20, iter([zeros] * 80))
        out.close()
    assert path.stat().st_size < 1 << 20
    with pytest.raises(BundleError, match=r"index\.json has a wrong size"):
        warmcc.unpack(path)
    assert os.listdir(place) == []


def test_a_file_that_is_larger_than_the_index_says(
    bundle: Path, tmp_path: Path, place: Path
) -> None:
    found = [(name, data + bytes(512) if "/" in name else data) for name, data in members(bundle)]
    with pytest.raises(BundleError, match="has a wrong size"):
        warmcc.unpack(written(found, tmp_path / "larger.tar.gz"))


def test_a_bundle_that_the_disk_cannot_hold(bundle: Path, tmp_path: Path, place: Path) -> None:
    def enlarge(index: dict[str, list[dict[str, int]]]) -> None:
        for entry in index["entries"]:
            entry["size"] = 1 << 36

    huge = edited(bundle, tmp_path / "huge.tar", enlarge)
    if os.statvfs(tmp_path).f_bavail * os.statvfs(tmp_path).f_frsize > 2 << 36:
        pytest.skip("this disk has room for it")
    with pytest.raises(BundleError, match="has no room for the bundle: it needs"):
        warmcc.unpack(huge)
    assert os.listdir(place) == []


def test_a_newer_format(bundle: Path, tmp_path: Path, place: Path) -> None:
    newer = edited(bundle, tmp_path / "newer.tar", lambda index: index.update(format=2))
    with pytest.raises(BundleError, match="the bundle has format 2, and this warmcc reads 1"):
        warmcc.unpack(newer)


@pytest.mark.parametrize("data", [b"", b"x", b"\x1f\x8b", b"PK\3\4" + bytes(2000), bytes(10240)])
def test_what_is_no_bundle(tmp_path: Path, place: Path, data: bytes) -> None:
    (tmp_path / "x.tar.gz").write_bytes(data)
    with pytest.raises(BundleError, match="not a bundle, or a damaged one"):
        warmcc.unpack(tmp_path / "x.tar.gz")


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
            "is not signed, and bundle_trust takes only bundles that are signed with ed25519:",
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
        process = subprocess.Popen(words, env=target.environment, stderr=subprocess.DEVNULL)
        while process.poll() is None:
            written_now = [one.stat().st_size for one in target.bundles.glob(f".*/{name}")]
            if written_now and written_now[0] >= size:
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
