"""``warmcc enable`` and ``warmcc disable``: a file in a virtual environment's site-packages, which
its Python reads at each start, installs warmcc."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path

from warmcc.errors import RequestError

NAME = "warmcc-install.pth"
# A line that begins with "import" is run. Without warmcc it does nothing.
_LINE = (
    'import sys; exec("try:\\n from warmcc.client.install.children import enable\\n'
    'except ImportError:\\n pass\\nelse:\\n enable()")\n'
)


def enable(venv: str | None) -> Path:
    """Write the file; returns its path. ``venv`` is a folder, or None for this Python's own.
    Raises RequestError."""
    place = _site_packages(venv) / NAME
    try:
        place.write_text(_LINE, encoding="utf-8")
    except OSError as error:
        raise RequestError(f"{place} cannot be written: {error.strerror}") from None
    return place


def disable(venv: str | None) -> Path | None:
    """Remove the file; returns its path, or None where there was none. Raises RequestError."""
    place = _site_packages(venv) / NAME
    try:
        place.unlink()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RequestError(f"{place} cannot be removed: {error.strerror}") from None
    return place


def _site_packages(venv: str | None) -> Path:
    if venv is None:
        if sys.prefix == sys.base_prefix:
            raise RequestError(
                f"{sys.executable} is of no virtual environment; name one: --venv FOLDER"
            )
        return Path(sysconfig.get_path("purelib"))
    found = sorted(Path(venv).glob("lib/python3*/site-packages"))
    if not (Path(venv) / "pyvenv.cfg").is_file() or not found:
        raise RequestError(f"{venv} is no virtual environment: it has no pyvenv.cfg")
    return found[0]
