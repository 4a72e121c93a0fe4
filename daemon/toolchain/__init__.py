"""The compilers and the linker as real binaries, identified by content, with torch's and Python's
identity.
"""

from warmcc.daemon.toolchain.identity import MissingCompiler, Toolchain, Toolchains

__all__ = ["MissingCompiler", "Toolchain", "Toolchains"]
