"""A remote store on a Redis server (or one that speaks its protocol, RESP 2)."""

from __future__ import annotations

import socket
import ssl
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from warmcc.daemon.remote.places import SILENT_SECONDS, WHOLE_SECONDS, Trouble, within

_LINE = 1 << 12
_DENIED = ("NOAUTH", "WRONGPASS", "NOPERM", "READONLY", "DENIED")
_PREFIX = "warmcc/"


class Redis:
    """Raises Trouble for a URL that is none."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self._address = (parts.hostname or "localhost", parts.port or 6379)
        except ValueError as error:
            raise Trouble("not supported", f"the URL is invalid: {error}") from None
        base = parts.path.strip("/")
        if parts.query or parts.fragment or (base and not base.isdecimal()):
            raise Trouble(
                "not supported", "the URL must be redis://[USER:PASSWORD@]HOST[:PORT][/N]"
            )
        self._tls = ssl.create_default_context() if parts.scheme.lower() == "rediss" else None
        self._first: list[list[bytes]] = []
        if parts.password:
            user = [unquote(parts.username).encode()] if parts.username else []
            self._first.append([b"AUTH", *user, unquote(parts.password).encode()])
        if base:
            self._first.append([b"SELECT", base.encode()])

    def get(self, name: str, limit: int) -> bytes | None:
        return self._ask([b"GET", _key(name)], limit)

    def put(self, name: str, data: bytes) -> None:
        self._ask([b"SET", _key(name), data], 0)

    def delete(self, name: str) -> None:
        self._ask([b"DEL", _key(name)], 0)

    def _ask(self, command: list[bytes], limit: int) -> bytes | None:
        """The answer to a command. Raises Trouble."""
        opened: list[socket.socket] = []

        def end() -> None:
            for one in opened:
                one.shutdown(socket.SHUT_RDWR)

        with within(WHOLE_SECONDS, end), socket.create_connection(
            self._address, SILENT_SECONDS
        ) as connection:  # fmt: skip
            opened.append(connection)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=self._address[0])
                opened[:] = [connection]
            with connection, connection.makefile("rb") as answers:
                connection.sendall(b"".join(map(_encoded, [*self._first, command])))
                for _ in self._first:
                    _answer(answers, 0)
                return _answer(answers, limit)


def _key(name: str) -> bytes:
    return f"{_PREFIX}{name}".encode()


def _encoded(words: list[bytes]) -> bytes:
    r"""A command as the server reads it.

    >>> _encoded([b"GET", b"a"])
    b'*2\r\n$3\r\nGET\r\n$1\r\na\r\n'
    """
    parts = [b"$%d\r\n%b\r\n" % (len(word), word) for word in words]
    return b"*%d\r\n%b" % (len(words), b"".join(parts))


def _answer(answers: BinaryIO, limit: int) -> bytes | None:
    """One answer; None for none. Raises Trouble, OSError."""
    line = answers.readline(_LINE)
    kind, text = line[:1], line[1:-2].decode("utf-8", "replace")
    if not line.endswith(b"\r\n"):
        raise Trouble("unreachable", "the server ended the connection")
    if kind in (b"+", b":"):
        return text.encode()
    if kind == b"-":
        if text.startswith(_DENIED):
            raise Trouble("denied", f"the server answers {text!r}")
        raise Trouble("full" if text.startswith("OOM") else "wrong answer", f"it answers {text!r}")
    if kind != b"$" or not text.removeprefix("-").isdecimal():
        raise Trouble("wrong answer", f"this is no answer of Redis: {line[:50]!r}")
    if (size := int(text)) < 0:
        return None
    if size > limit:
        raise Trouble("damaged", f"an answer has {size} bytes, more than {limit}")
    data = answers.read(size + 2)
    if len(data) != size + 2:
        raise Trouble("unreachable", "the server ended the connection in an answer")
    return data[:-2]
