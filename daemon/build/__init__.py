"""One build: what is worked on, in which steps, and what becomes of it."""
