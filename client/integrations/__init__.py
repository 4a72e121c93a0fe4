"""Notebooks and pytest."""
