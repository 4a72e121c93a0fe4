"""The machine below a build: processes, permits, memory, inotify, Landlock.
Knows nothing of compilers.
"""
