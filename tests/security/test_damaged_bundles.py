"""Bundles that are damaged, or written by an attacker: refused, or the right code."""

from __future__ import annotations

import os
import random
import tarfile
import time
from pathlib import Path

import msgspec
import pytest

import warmcc
from tests.support.bundling import (
    PAIR,
    Members,
    edited,
    members,
    request,
    tar_of,
    written,
)
from warmcc import digest
from warmcc.client.bundles import archive, finding, layout
from warmcc.client.bundles.layout import CHECK, INDEX
from warmcc.errors import BundleError, OfflineError


@pytest.fixture(scope="module")
def contents(bundle: Path) -> dict[str, bytes]:
    """The artifacts by their names."""
    found = dict(members(bundle))
    entries = msgspec.json.decode(found[INDEX], type=layout.Index).entries
    return {entry.name: found[f"files/{entry.file}"] for entry in entries}


def is_right(contents: dict[str, bytes]) -> bool:
    """Whether both calls are refused, or get the code that was built for them."""
    found = False
    for name, answer in PAIR.items():
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
