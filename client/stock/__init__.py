"""Stock torch, where warmcc cannot or may not build."""
