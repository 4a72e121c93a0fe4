"""The live loop: handles, the watch command, notebooks, pytest, against a real daemon."""
