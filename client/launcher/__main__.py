"""``python -m warmcc.client.launcher c++ …``: a compiler's command, as the script ``warmcc`` hands
it over.
"""

import sys

from warmcc.client.launcher.launch import launch

sys.exit(launch(sys.argv[1:]))
