"""One hierarchy of errors, split into "your code", "your request" and "the service".

Everything derives from RuntimeError, because that is what stock torch raises when a build fails:
code written for stock catches warmcc's errors too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from warmcc.protocol import Diagnostic


class WarmccWarning(UserWarning):
    """Something was slower than it should be (the stock path was taken), and why."""


class WarmccError(RuntimeError):
    """Base of warmcc's errors."""


class CompileError(WarmccError):
    """The user's code did not compile or link.

    ``str()`` is the compiler's whole output behind stock's prefix, with locations in the user's own
    lines; ``diagnostics`` holds the same, one record per message.
    """

    def __init__(self, message: str, diagnostics: Sequence[Diagnostic] = ()) -> None:
        super().__init__(message)
        self.diagnostics = tuple(diagnostics)


class RequestError(WarmccError):
    """The request is invalid (a name that is not a file name, a message over the size limit)."""


class BundleError(WarmccError):
    """A bundle cannot be made, or is refused: damaged, not signed, or made for another machine."""


class PrebuildError(WarmccError):
    """A package of variants cannot be built or written.

    ``failures`` are the errors of the variants that did not build, by their names.
    """

    def __init__(self, message: str, failures: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.failures = dict(failures or {})


class OfflineError(WarmccError):
    """WARMCC_OFFLINE is set, and no unpacked bundle has what a call needs."""


class ConfigError(WarmccError):
    """The configuration file or a ``WARMCC_…`` variable is invalid; the message names the key."""


class DaemonError(WarmccError):
    """The service could not answer; base of the reasons for taking the stock path."""


class DaemonUnavailable(DaemonError):
    """No daemon runs and none could be started, or the connection to it was lost."""


class DaemonTimeout(DaemonError):
    """The daemon is there and stopped answering, or the time limit for a build ran out."""


class DaemonBusy(DaemonError):
    """Too many builds are waiting, or there is no room for another client."""


class VersionMismatch(DaemonError):
    """The daemon and this client share no version of the protocol."""
