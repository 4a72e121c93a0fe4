"""The checks of ``warmcc doctor``: each yields findings."""
