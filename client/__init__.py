"""Everything that runs in the user's process. Imports warmcc's shared vocabulary, never
warmcc.daemon.

A call of ``load`` or ``load_inline`` (inline) becomes a request (arguments) under a module name of
its own (variants), goes to the daemon (session, which may have to start one: autostart) while torch
is imported, and comes back as a file that is loaded as stock loads it (loader) or as the exception
that stock would have raised (failures). What the daemon cannot or shall not build, stock torch does
(fallback), kept from hanging on a dead process's lock (baton). What a person sees meanwhile is in
progress and notices.

An equal call of the same process is answered from memory while that is known to be true
(remembering). The connection is a plain socket (connection). torch is not imported before the first
call.
"""
