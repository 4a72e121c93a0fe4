"""The artifacts of a package of variants, which ``warmcc prebuild`` has written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from warmcc.client.bundles import drafts
from warmcc.client.bundles.drafts import Draft
from warmcc.errors import BundleError

_METADATA = "metadata.json"


def is_package(folder: str) -> bool:
    return os.path.isfile(os.path.join(folder, _METADATA))


def stored(folder: str) -> Iterator[Draft]:
    """Drafts of a package's artifacts, from the store of this machine's daemon, which built them.
    Raises BundleError where one is not there any more, DaemonError, OSError."""
    try:
        with open(os.path.join(folder, _METADATA), encoding="utf-8") as file:
            variants = [
                (str(one["module"]), str(one["artifact"])) for one in json.load(file)["variants"]
            ]
    except (ValueError, TypeError, KeyError) as error:
        raise BundleError(f"{folder} is no package of variants: {error!r}") from None
    for module, artifact in variants:
        found = [one for one in drafts.stored(module) if one.file == artifact]
        if not found:
            raise BundleError(
                f"{folder} was built otherwise than the store's {module!r}; build the package "
                "again: warmcc prebuild"
            )
        yield found[0]
