"""The remote store that the settings name, if they name one."""

from __future__ import annotations

import logging
import os

from warmcc import signing
from warmcc.config import Config, without_password
from warmcc.daemon.closure.closure import Closures
from warmcc.daemon.remote.exchange import Exchange
from warmcc.daemon.remote.header_contents import HeaderContents
from warmcc.daemon.remote.places import Trouble, opened
from warmcc.daemon.remote.tier import Tier, Unusable
from warmcc.daemon.store import Store
from warmcc.daemon.store.hits import Hits
from warmcc.daemon.store.trust import Trust
from warmcc.daemon.toolchain.known_contents import KnownContents
from warmcc.errors import BundleError, ConfigError

log = logging.getLogger(__name__)


def tier_of(
    config: Config, store: Store, closures: Closures, known: KnownContents, trust: Trust, hits: Hits
) -> Tier | None:
    """None without one. It is opened later, in a thread: a folder may be on a server that hangs."""
    if not config.remote:
        return None
    writes = config.remote_write and bool(config.bundle_key or not config.bundle_trust)
    if config.remote_write and not writes:
        log.info("nothing is put into the remote store: bundle_trust is set, and bundle_key is not")

    def made() -> Exchange:
        try:
            signer = _signer(config) if writes else None
            signing.check_keys(config.bundle_trust)
            place = opened(config.remote, signed=bool(config.bundle_trust))
        except (Trouble, BundleError, ConfigError) as error:
            raise Unusable(str(error)) from None
        contents = HeaderContents(store, known)
        return Exchange(place, store, closures, contents, trust, signer, config.bundle_trust)

    url = without_password(config.remote)
    return Tier(url, made, hits, wait=config.remote_wait, writes=writes)


def _signer(config: Config) -> signing.Signer | None:
    """Raises BundleError, ConfigError."""
    path = os.path.expanduser(config.bundle_key)
    return signing.Signer(path) if path else None
