"""Cases off the road for which warmcc was tuned: is any call slower than with stock torch?

``cases.py`` lists what is built, ``texts.py`` and ``foreign.py`` have the sources, ``child.py`` is
the user's process that makes the calls, ``worlds.py`` the states of the daemon, ``measure.py``
makes the calls of a case in turns, ``ledger.py`` keeps what was found, ``verdict.py`` says what is
wrong or slower, and ``table.py`` shows it.
"""
