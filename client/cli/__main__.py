"""``python -m warmcc.client.cli``: the command line without its installed script."""

import sys

from warmcc.client.cli import main

sys.exit(main())
