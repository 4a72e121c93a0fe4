"""Everything that runs in the user's process. Imports warmcc's shared vocabulary, never warmcc.daemon."""
