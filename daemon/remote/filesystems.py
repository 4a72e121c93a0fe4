"""A remote store behind any other URL, by fsspec: s3, gs, az, sftp and more."""

from __future__ import annotations

import posixpath
from typing import Any

from warmcc.daemon.remote.places import SILENT_SECONDS, WHOLE_SECONDS, Reason, Trouble

_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        "config_kwargs": {
            "connect_timeout": SILENT_SECONDS, "read_timeout": SILENT_SECONDS,
            "retries": {"max_attempts": 1},
        },
    },
    "local": {"auto_mkdir": True},
}  # fmt: skip
_INSTALL = "run in the daemon's Python: pip install 'warmcc[remote]'"


class Filesystem:
    """Raises Trouble for a URL that fsspec does not know, or without its package."""

    def __init__(self, url: str) -> None:
        scheme = url.partition("://")[0].lower()
        try:
            from fsspec.core import url_to_fs
        except ImportError:
            raise Trouble("not supported", f"{scheme} needs fsspec; {_INSTALL}") from None
        try:
            self._files, self._root = url_to_fs(
                url, skip_instance_cache=True, **_OPTIONS.get(scheme, {})
            )
            if scheme == "s3":
                self._files.retries = 1  # there is a breaker for what fails again and again
        except ImportError as error:
            raise Trouble("not supported", f"{scheme}: {error}; {_INSTALL}") from None
        except Exception as error:  # of any package
            raise Trouble("not supported", f"{scheme}: {_said(error)}") from None

    def get(self, name: str, limit: int) -> bytes | None:
        try:
            data: bytes = self._do("cat_file", self._path(name), start=0, end=limit + 1)
        except FileNotFoundError:
            return None
        except Exception as error:
            raise _trouble(error) from None
        if len(data) > limit:
            raise Trouble("damaged", f"{name} is longer than {limit} bytes")
        return data

    def put(self, name: str, data: bytes) -> None:
        path = self._path(name)
        try:
            try:
                self._do("pipe_file", path, data)
            except FileNotFoundError:
                self._do("makedirs", posixpath.dirname(path), exist_ok=True)
                self._do("pipe_file", path, data)
        except Exception as error:
            raise _trouble(error) from None

    def delete(self, name: str) -> None:
        try:
            self._do("rm_file", self._path(name))
        except FileNotFoundError:
            pass
        except Exception as error:
            raise _trouble(error) from None

    def _do(self, name: str, *arguments: Any, **more: Any) -> Any:
        """Call a method, within the time of a transfer where the package allows to stop it (those
        of S3, GCS and Azure do)."""
        if not getattr(self._files, "async_impl", False):
            return getattr(self._files, name)(*arguments, **more)
        from fsspec.asyn import sync

        method = getattr(self._files, f"_{name}")
        return sync(self._files.loop, method, *arguments, timeout=WHOLE_SECONDS, **more)

    def _path(self, name: str) -> str:
        return f"{str(self._root).rstrip('/')}/{name}"


def _trouble(error: Exception) -> Trouble:
    reason: Reason = "unreachable"
    if isinstance(error, PermissionError):
        reason = "denied"
    elif isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        reason = "timed out"
    return Trouble(reason, _said(error))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:300]
