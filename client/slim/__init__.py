"""The smallest set of torch's headers with which a source compiles to the same code."""
