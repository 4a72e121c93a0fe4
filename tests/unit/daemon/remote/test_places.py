"""Places: each kind keeps bytes under names, on real servers, and says what is wrong with them."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support import remotes
from tests.support.remotes import Proxy
from warmcc.daemon.remote import places, redis, web
from warmcc.daemon.remote.places import Place, Trouble, opened

NAME = "v1/files/ab/" + "ab" * 32


@contextlib.contextmanager
def place_of(kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    if kind == "folder":
        yield opened(str(folder / "store"), signed=False)
    elif kind == "file":
        yield opened(f"file://{folder}/store", signed=False)
    elif kind == "fsspec":
        pytest.importorskip("fsspec", reason="fsspec is not installed")
        yield opened(f"local://{folder}/store", signed=False)
    elif kind == "webdav":
        with remotes.webdav(folder) as port:
            yield opened(f"http://{remotes.USER}@127.0.0.1:{port}/some/folder", signed=False)
    elif kind == "redis":
        with remotes.redis(folder) as port:
            yield opened(f"redis://:secret@127.0.0.1:{port}/3", signed=False)
    else:
        with remotes.s3(folder) as port:
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                monkeypatch.setenv(name, "testing")
            monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
            monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
            import s3fs

            s3fs.S3FileSystem(endpoint_url=f"http://127.0.0.1:{port}").mkdir("bucket")
            yield opened("s3://bucket/some/folder", signed=False)


@pytest.mark.parametrize(
    "kind",
    ["folder", "file", "fsspec", "webdav", "redis", pytest.param("s3", marks=pytest.mark.slow)],
)
def test_a_place_keeps_bytes_under_names(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place_of(kind, tmp_path, monkeypatch) as place:
        data = os.urandom(300_000) + b"\r\n\0"
        assert place.get(NAME, 100) is None
        place.delete(NAME)
        place.put(NAME, b"first")
        place.put(NAME, data)
        assert place.get(NAME, len(data)) == data
        with pytest.raises(Trouble) as caught:
            place.get(NAME, len(data) - 1)
        assert caught.value.reason == "damaged"
        place.delete(NAME)
        assert place.get(NAME, 100) is None


def test_a_folder_keeps_its_rights_and_no_drafts(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o2770)
    place = opened(str(root), signed=False)
    place.put(NAME, b"data")
    assert (root / NAME).stat().st_mode & 0o777 == 0o660
    assert (root / NAME).parent.stat().st_mode & 0o7777 == 0o2770
    assert list((root / "parts").iterdir()) == []
    left = root / "parts" / "left"
    left.touch()
    os.utime(left, (0, 0))
    opened(str(root), signed=False)
    assert not left.exists()


def test_a_folder_that_all_users_can_write_to_needs_signatures(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir()
    root.chmod(0o1777)
    with pytest.raises(Trouble, match=r"can be written by all users.* set bundle_trust"):
        opened(str(root), signed=False)
    opened(str(root), signed=True)
    root.chmod(0o700)
    tmp_path.chmod(0o777)
    with pytest.raises(Trouble, match="can be written by all users"):
        opened(str(root), signed=False)
    tmp_path.chmod(0o1777)
    opened(str(root), signed=False)


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, who may give files away")
def test_a_folder_that_another_user_made_where_all_can_needs_signatures(tmp_path: Path) -> None:
    root = tmp_path / "store"
    root.mkdir(mode=0o700)
    tmp_path.chmod(0o1777)
    os.chown(root, 12345, 12345)
    with pytest.raises(Trouble, match="uid 12345 made"):
        opened(str(root), signed=False)


def test_what_is_no_file_in_a_folder_is_damaged(tmp_path: Path) -> None:
    place = opened(str(tmp_path), signed=False)
    (tmp_path / NAME).parent.mkdir(parents=True)
    os.mkfifo(tmp_path / NAME)
    with pytest.raises(Trouble) as caught:
        place.get(NAME, 10)
    assert caught.value.reason == "damaged"


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("some/folder", "neither a URL nor an absolute path"),
        ("http://", "the URL must be"),
        ("https://host/x?token=1", "the URL must be"),
        ("http://host:port/", "the URL is invalid"),
        ("redis://host/name", "the URL must be"),
        ("redis://host:99999", "the URL is invalid"),
        ("nosuchthing://host/x", "nosuchthing"),
    ],
)
def test_urls_that_are_none(url: str, said: str) -> None:
    with pytest.raises(Trouble, match=said) as caught:
        opened(url, signed=False)
    assert caught.value.reason == "not supported"


def test_a_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fsspec.core", None)
    with pytest.raises(Trouble, match=r"pip install 'warmcc\[remote\]'"):
        opened("s3://bucket", signed=False)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that a test can wait for."""
    for module in (web, redis):
        monkeypatch.setattr(module, "SILENT_SECONDS", 0.3)
        monkeypatch.setattr(module, "WHOLE_SECONDS", 1.0)


HOSTILE = {
    "silent": ({"hang": 0, "says": b"x"}, "timed out"),
    "closes": ({"cut": 0, "says": b"x"}, "unreachable"),
    "noise": ({"cut": 500, "says": b"\x00\xff noise without an end of a line" * 40}, ""),
    "an endless line": ({"says": b"x" * 100_000}, ""),
    "drips": ({"drip": 1, "says": b"HTTP/1.1 200 OK\r\nX: " + b"y" * 4000}, "timed out"),
}


@pytest.mark.parametrize("scheme", ["http", "redis"])
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_servers(scheme: str, name: str, soon: None) -> None:
    fault, reason = HOSTILE[name]
    with Proxy(**fault) as server:  # type: ignore[arg-type]
        place = opened(f"{scheme}://127.0.0.1:{server.port}", signed=False)
        with pytest.raises(Trouble) as caught:
            place.get(NAME, 1000)
        assert not reason or caught.value.reason == reason
        with pytest.raises(Trouble):
            place.put(NAME, b"data")
        assert server.connections >= 2


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nabc", "unreachable"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 5000, "damaged"),
        (b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n", "denied"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n", "wrong answer"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://elsewhere/\r\n\r\n", "wrong answer"),
        (b"HTTP/1.1 507 Full\r\nContent-Length: 0\r\n\r\n", "full"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "wrong answer"),
    ],
)
def test_answers_of_web_servers(says: bytes, reason: str, soon: None) -> None:
    with Proxy(says=says, cut=len(says)) as server:
        place = opened(f"http://127.0.0.1:{server.port}/x", signed=False)
        with pytest.raises(Trouble) as caught:
            place.get(NAME, 1000)
        assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        (b"-NOAUTH Authentication required.\r\n", "denied"),
        (b"-OOM command not allowed\r\n", "full"),
        (b"-ERR unknown\r\n", "wrong answer"),
        (b"$999999999999\r\n", "damaged"),
        (b"$10\r\nabc", "unreachable"),
        (b"$x\r\n", "wrong answer"),
        (b"HTTP/1.1 400 Bad Request\r\n", "wrong answer"),
    ],
)
def test_answers_of_redis(says: bytes, reason: str, soon: None) -> None:
    with Proxy(says=says, cut=len(says)) as server:
        place = opened(f"redis://127.0.0.1:{server.port}", signed=False)
        with pytest.raises(Trouble) as caught:
            place.get(NAME, 1000)
        assert caught.value.reason == reason


def test_a_server_that_is_not_there() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    for scheme in ("http", "redis"):
        with pytest.raises(Trouble, match="refused") as caught:
            opened(f"{scheme}://127.0.0.1:{port}", signed=False).get(NAME, 10)
        assert caught.value.reason == "unreachable"


def test_credentials_that_are_wrong(tmp_path: Path) -> None:
    with remotes.webdav(tmp_path / "web") as port, pytest.raises(Trouble) as caught:
        opened(f"http://someone:else@127.0.0.1:{port}", signed=False).put(NAME, b"data")
    assert caught.value.reason == "denied"
    with remotes.redis(tmp_path / "redis") as port:
        for user in ("", ":else@"):
            with pytest.raises(Trouble) as caught:
                opened(f"redis://{user}127.0.0.1:{port}", signed=False).get(NAME, 10)
            assert caught.value.reason == "denied"


def test_a_transfer_has_a_limit_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where some bytes come all the time, and the end would look like an end."""
    monkeypatch.setattr(web, "WHOLE_SECONDS", 0.5)
    says = b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 900
    with Proxy(says=says, drip=20) as server:
        place = opened(f"http://127.0.0.1:{server.port}", signed=False)
        with pytest.raises(Trouble) as caught:
            place.get(NAME, 1000)
    assert caught.value.reason == "timed out"
    assert places.WHOLE_SECONDS > places.SILENT_SECONDS
