"""A build as people and editors read it."""
