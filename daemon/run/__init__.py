"""The zygotes of ``warmcc run``: processes of the user's Python, each stopped in its startup behind
the import of torch, and forked for each run.

A run's process goes on with that startup: Python's own main program reads the script and runs it,
and ends as always. No frame of warmcc is below the user's, and nothing imitates ``python``.

A zygote is a program that stands alone: no daemon takes part. It is started by a launcher, in that
one's circumstances, serves its user alone, and ends when it is idle.
"""
