"""Texts without torch's headers (``warmcc.kernel``, ``warmcc.cfunctions``): compiled and kept."""
