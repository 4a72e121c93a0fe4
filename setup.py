"""The packages: ``warmcc``, and the folders beside it that are its subpackages (``package-dir`` in
pyproject.toml).
"""

from setuptools import find_packages, setup

rooms = [
    room
    for name in ("client", "daemon", "systemd")
    for room in find_packages(include=[name, f"{name}.*"])
]
setup(packages=["warmcc", *(f"warmcc.{room}" for room in rooms)])
