"""Commands that measure builds: ``warmcc analyze``, ``slim`` and ``top``."""
