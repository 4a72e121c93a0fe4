"""Imported by a zygote of ``warmcc run --inductor``: enables what its programs use."""

from __future__ import annotations

from warmcc.client.inductor.switch import enable

enable(artifacts=False)  # those of bundles are for each program to load
