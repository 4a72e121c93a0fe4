"""``python -m warmcc.daemon``: run the daemon in the foreground."""

from __future__ import annotations

import sys

from warmcc.daemon.main import main

if __name__ == "__main__":
    sys.exit(main())
