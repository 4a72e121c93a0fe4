"""The packages: ``warmcc``, and the folders of its subpackages (pyproject's ``package-dir``)."""

from setuptools import find_packages, setup

rooms = [
    room
    for name in ("client", "daemon", "systemd")
    for room in find_packages(include=[name, f"{name}.*"])
]
setup(packages=["warmcc", *(f"warmcc.{room}" for room in rooms)])
