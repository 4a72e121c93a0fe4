"""Warm state per profile: a prelude, a toolchain and the flags that change what the prelude parses
to.
"""
