"""``python -m warmcc script.py …``: as ``python script.py …``, with warmcc installed.

Takes what ``python`` takes: a script, ``-m module`` or ``-c code``, and its words.
"""

import sys

from warmcc.client.install import children

if sys.argv[1:] in (["-h"], ["--help"]):
    print(__doc__)
else:
    children.run_python(sys.argv[1:])
