"""``warmcc run``: a Python program in a fork of a process that has torch imported.

The launcher (launch.py) asks a zygote that was started under the same circumstances (facts.py) to
run the program, and stands in for it while it runs (attend.py). Where there is none, it has one
started for the next time (start.py) and becomes python.
"""
