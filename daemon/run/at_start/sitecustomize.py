"""What a zygote's Python runs at its start (see ``daemon/run/__init__.py``): the zygote, and in its
forks nothing more. It leaves the modules as if it had never been found.
"""

import importlib
import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if one != here]
    sys.path_importer_cache.pop(here, None)
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")  # the one that this one hides
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    first = set(sys.modules)
    theirs = sys.modules.get("sitecustomize")
    from warmcc.daemon.run.start import become_job

    become_job(first)
    for name in [name for name in sys.modules if name.partition(".")[0] == "warmcc"]:
        del sys.modules[name]
    if theirs is None:
        sys.modules["sitecustomize"] = ours
        raise ImportError("there is none", name="sitecustomize")
    sys.modules["sitecustomize"] = theirs


_begin()
