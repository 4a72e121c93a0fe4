"""Packages from PyPI that no line was changed in: what they are, where they are built, and what
they compute on a GPU.
"""
