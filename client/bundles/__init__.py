"""Bundles: artifacts that another machine loads without a daemon and without a compiler."""
