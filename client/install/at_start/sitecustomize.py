"""What Python runs at its start under ``warmcc exec`` (see ``client/install/children.py``)."""

import importlib
import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [one for one in sys.path if os.path.abspath(one or ".") != here]
    try:
        from warmcc.client.install.children import enable
    except ImportError:  # a Python of another environment, without warmcc
        pass
    else:
        enable()
    ours = sys.modules.pop("sitecustomize")
    try:
        importlib.import_module("sitecustomize")  # the one that this one hides
    except ImportError as error:
        if error.name != "sitecustomize":
            raise
    finally:
        sys.modules.setdefault("sitecustomize", ours)


_begin()
