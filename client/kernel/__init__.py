"""``warmcc.kernel`` and ``warmcc.cfunctions``: code without torch's C++.

A source's signature is read (``signature.py``, ``c_types.py``), the daemon or this process compiles
it (``compiling.py``), and each call is checked against the signature (``arguments.py``) before the
driver launches the kernel (``driver.py``, ``launcher.py``).
"""
