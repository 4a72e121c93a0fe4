"""Commands that run a user's programs."""
