"""Scripts that ``warmcc bench`` runs, with python and with ``warmcc run``."""
