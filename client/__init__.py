"""Everything that runs in the user's process.
Imports warmcc's shared vocabulary, never warmcc.daemon.

A call of ``load`` or ``load_inline`` (calls/api.py) becomes a request (arguments.py) under its own
module name (variants.py). The request goes to the daemon (connection/session.py, and spawn.py,
which starts one) while torch is imported. The answer is a file that is loaded as stock loads it
(loading/loader.py), or the exception that stock would have raised (connection/exceptions.py). Stock
torch builds what the daemon does not (stock/fallback.py), and does not wait for a dead process's
lock (stock/lock_file.py). Progress and warnings are in calls/progress.py and notices.py.

An equal call of the same process is answered from memory while that is known to be true
(connection/remembering.py). The connection is a plain socket (connection/wire.py). torch is not
imported before the first call.
"""
