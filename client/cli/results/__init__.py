"""Commands about what is in the store."""
