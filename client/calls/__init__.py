"""`load_inline` and `load`: arguments in, a request out, a module back."""
