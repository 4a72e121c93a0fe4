"""``warmcc cc``, ``warmcc c++``, ``warmcc nvcc``: command lines of compilers, with the daemon
behind those that compile one source against torch's headers.

A command is read (command_line.py) and asked of the daemon (launch.py), which answers with an
object, with what the compiler said, and with what it read (depfile.py). The real compiler runs
every other command, in place of this process.
"""
