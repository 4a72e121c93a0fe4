"""From a shared object to a Python module."""
