"""A leaderboard's evaluator: compile submissions on one machine, run them on another.

``compile.py`` has a warmcc daemon build each submission in its sandbox, and packs a bundle.
``run.py`` runs the bundle in a fresh process that sees nothing else, and checks its results from
outside. ``evaluator.py`` does both for many users at a time. ``task.py`` is the problem to solve:
replace it by another one. See docs/user/leaderboard.md.
"""
