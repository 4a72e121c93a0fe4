"""From a request to a plan: keys, what is refused, what torch itself would do, and in which ways
that can be done.
"""
