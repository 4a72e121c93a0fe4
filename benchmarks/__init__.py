"""Measurements against stock torch: warmcc and stock take turns in one run; claims are ratios of medians."""
