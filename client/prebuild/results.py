"""A store of results by content, in a folder or at an fsspec URL: what work units hand over.

``objects/DIGEST`` are shared objects, ``noted/ID`` records of jobs that name one. An object is
checked against its name whenever it is read, so that a damaged or cut one counts as none. Who can
write here can have code run on the machines that load the package.
"""

from __future__ import annotations

import contextlib
import json
import os
from typing import Any, Protocol

from warmcc import digest
from warmcc.errors import RequestError


class _Files(Protocol):
    def read(self, name: str) -> bytes:
        """Raises OSError."""

    def write(self, name: str, data: bytes) -> None:
        """Raises OSError."""


class Results:
    """The store at a path or URL, which is made when something is put there."""

    def __init__(self, place: str) -> None:
        """Raises RequestError for a URL that cannot be used."""
        self.place = place
        self._files: _Files = _Remote(place) if "://" in place else _Folder(place)

    def put(self, data: bytes) -> str:
        """Keep an object; gives its digest. Raises OSError."""
        name = digest.of_bytes(data)
        if self.get(name) is None:
            self._files.write(f"objects/{name}", data)
        return name

    def get(self, name: str) -> bytes | None:
        """The object with a digest, or None where it is not there, or is not what its name says."""
        if not digest.is_digest(name):
            return None
        try:
            data = self._files.read(f"objects/{name}")
        except OSError:
            return None
        return data if digest.of_bytes(data) == name else None

    def note(self, job: str, record: dict[str, Any]) -> None:
        """Keep the record of a job. Raises OSError."""
        self._files.write(f"noted/{job}", json.dumps(record).encode())

    def noted(self, job: str) -> dict[str, Any] | None:
        """The record of a job, or None where there is none that can be read."""
        with contextlib.suppress(OSError, ValueError, RecursionError):
            found = json.loads(self._files.read(f"noted/{job}"))
            if isinstance(found, dict) and digest.is_digest(str(found.get("digest"))):
                return found
        return None


class _Folder:
    def __init__(self, place: str) -> None:
        self._place = os.path.abspath(place)

    def read(self, name: str) -> bytes:
        with open(os.path.join(self._place, name), "rb") as file:
            return file.read()

    def write(self, name: str, data: bytes) -> None:
        """In one step: no reader sees a part of it."""
        path = os.path.join(self._place, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        draft = f"{path}.{os.urandom(8).hex()}.part"
        try:
            with open(draft, "xb") as file:
                file.write(data)
            os.replace(draft, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft)
            raise


class _Remote:
    """What fsspec reaches. Its errors of any kind become OSError."""

    def __init__(self, place: str) -> None:
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise RequestError(
                f"{place} needs the package fsspec: pip install fsspec, or name a folder"
            ) from None
        try:
            self._system, self._place = url_to_fs(place)
        except Exception as error:  # ImportError of a protocol's package, ValueError, …
            raise RequestError(f"{place} cannot be used: {error}") from None

    def read(self, name: str) -> bytes:
        try:
            return bytes(self._system.cat_file(f"{self._place}/{name}"))
        except Exception as error:
            raise OSError(f"{self._place}/{name} cannot be read: {error}") from error

    def write(self, name: str, data: bytes) -> None:
        path = f"{self._place}/{name}"
        try:
            self._system.makedirs(path.rpartition("/")[0], exist_ok=True)
            self._system.pipe_file(path, data)
        except Exception as error:
            raise OSError(f"{path} cannot be written: {error}") from error
