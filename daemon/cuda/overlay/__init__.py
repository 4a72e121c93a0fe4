"""The lean prelude: torch's headers without what kernels do not use, in front of the real ones."""
