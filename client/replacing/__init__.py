"""How warmcc's functions take the place of torch's: when torch is imported, and until when."""
