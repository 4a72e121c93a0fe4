"""Which arguments of a call say something: an older torch may lack a parameter that was left at its default."""

from __future__ import annotations

import inspect
from typing import Any


def without_defaults(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that differ from their defaults (by identity, so that no value's ``==`` is asked)."""
    from warmcc.client import inline

    function = inline.load if "sources" in arguments else inline.load_inline
    defaults = {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}
    return {key: value for key, value in arguments.items() if key not in defaults or value is not defaults[key]}
