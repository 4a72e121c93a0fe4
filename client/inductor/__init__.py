"""``warmcc.inductor``: what torch.compile compiles with a C++ compiler, by the daemon.

Functions of torch are replaced (switch.py): the one that runs a compiler's command (commands.py),
the one that makes Inductor's own precompiled header (headers.py), the one that tries which vector
instructions can be used (checks.py), the one that looks for a compiler (packed.py), and those that
look for what Triton has compiled and how it was tuned (cubins.py). Command lines, and so the keys
and names of all that Inductor caches, stay as they are. Where torch is not as expected, or the
daemon cannot serve, torch's own function does its work.
"""
