"""How the command line shows things."""
