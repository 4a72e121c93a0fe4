"""Compilers and linkers as real binaries, identified by content, with torch and Python."""

from warmcc.daemon.toolchain.identity import MissingCompiler, Toolchain, Toolchains, resolve

__all__ = ["MissingCompiler", "Toolchain", "Toolchains", "resolve"]
