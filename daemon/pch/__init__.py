"""Warm state per profile: a prelude, a toolchain, and the flags that affect the prelude."""
