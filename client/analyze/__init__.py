"""What one build costs with stock torch, and why: measured, step by step and header by header."""
