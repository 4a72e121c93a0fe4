"""Versions of a loaded extension, and how one goes away again."""
