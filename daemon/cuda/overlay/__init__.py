"""The lean prelude: headers that stand in front of the real ones, without what kernels do not use."""
