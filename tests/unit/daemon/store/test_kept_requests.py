"""The request that the store keeps with an artifact, and what of it other users may read."""

from __future__ import annotations

import msgspec

from tests.support.calls import request
from warmcc.daemon.plan import requested
from warmcc.daemon.store import REQUEST
from warmcc.daemon.store.manifest import public
from warmcc.request import Request


def test_it_is_the_request_without_variables_that_may_hold_secrets() -> None:
    secret = "redis://user:s3cret@host"
    wanted = request(environment={"CXX": "g++", "CCACHE_REMOTE_STORAGE": secret, "HOME": "/h"})
    kept = requested.to_keep(wanted)
    assert secret not in str(kept)
    again = msgspec.convert(kept, Request)
    assert again == msgspec.structs.replace(wanted, environment={"CXX": "g++"})


def test_a_shared_store_has_none() -> None:
    assert public({"way": "lean", REQUEST: {}}) == {"way": "lean"}
