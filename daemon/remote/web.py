"""A remote store on an HTTP server that takes GET and PUT, such as WebDAV."""

from __future__ import annotations

import base64
import contextlib
import http.client
import posixpath
import socket
import ssl
from urllib.parse import unquote, urlsplit

from warmcc.daemon.remote.places import SILENT_SECONDS, WHOLE_SECONDS, Trouble, within
from warmcc.version import __version__

_NONE, _DENIED, _FULL = (404, 410), (401, 403, 407), (413, 507)
_NO_FOLDER = (403, 404, 409)  # what servers say where the folder of a new file is missing


class Web:
    """Raises Trouble for a URL that is none."""

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
        except ValueError as error:
            raise Trouble("not supported", f"the URL is invalid: {error}") from None
        if not self._host or parts.query or parts.fragment:
            raise Trouble("not supported", "the URL must be https://[USER:PASSWORD@]HOST/FOLDER")
        self._tls = ssl.create_default_context() if parts.scheme.lower() == "https" else None
        self._root = parts.path.rstrip("/")
        self._headers = {"User-Agent": f"warmcc/{__version__}", "Connection": "close"}
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(user.encode()).decode()}"

    def get(self, name: str, limit: int) -> bytes | None:
        status, data = self._ask("GET", f"{self._root}/{name}", limit=limit)
        if status in _NONE:
            return None
        if status != 200:
            raise _trouble("GET", status)
        return data

    def put(self, name: str, data: bytes) -> None:
        path = f"{self._root}/{name}"
        status, _ = self._ask("PUT", path, data)
        if status in _NO_FOLDER:
            for folder in _above(path):
                self._ask("MKCOL", folder)
            status, _ = self._ask("PUT", path, data)
        if status not in (200, 201, 204):
            raise _trouble("PUT", status)

    def delete(self, name: str) -> None:
        status, _ = self._ask("DELETE", f"{self._root}/{name}")
        if status not in (200, 202, 204, *_NONE):
            raise _trouble("DELETE", status)

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=SILENT_SECONDS)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=SILENT_SECONDS, context=self._tls
        )

    def _ask(
        self, method: str, path: str, body: bytes | None = None, limit: int = 0
    ) -> tuple[int, bytes]:
        """The status of an answer, and what it found. Raises Trouble."""
        connection = self._connection()
        opened: list[socket.socket] = []  # the connection forgets its socket before the answer ends

        def end() -> None:
            for one in opened:
                one.shutdown(socket.SHUT_RDWR)

        with contextlib.closing(connection), within(WHOLE_SECONDS, end):
            try:
                connection.connect()
                opened.append(connection.sock)
                connection.request(method, path, body, self._headers)
                with connection.getresponse() as response:
                    if method != "GET" or response.status != 200:
                        return response.status, b""
                    size = min(response.length or 0, limit + 1)
                    data = response.read(limit + 1)
            except http.client.HTTPException as error:
                if isinstance(error, OSError):  # the server closed the connection
                    raise
                raise Trouble("wrong answer", f"{type(error).__name__}: {error}"[:200]) from None
            if len(data) < size:
                raise Trouble("unreachable", "the server ended the connection in an answer")
            if len(data) > limit:
                raise Trouble("damaged", f"the answer to {method} is longer than {limit} bytes")
            return response.status, data


def _above(path: str) -> list[str]:
    """The folders above a path, the outermost first.

    >>> _above("/v1/results/ab/abcd")
    ['/v1/', '/v1/results/', '/v1/results/ab/']
    """
    folder = posixpath.dirname(path)
    return [] if folder in ("", "/") else [*_above(folder), f"{folder}/"]


def _trouble(method: str, status: int) -> Trouble:
    text = f"the server answers {method} with HTTP {status}"
    if status in _DENIED:
        return Trouble("denied", text)
    return Trouble("full" if status in _FULL else "wrong answer", text)
