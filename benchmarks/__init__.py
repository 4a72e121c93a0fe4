"""Measurements against stock torch: each scenario takes warmcc and stock in turns and gives a ratio
of medians.
"""
