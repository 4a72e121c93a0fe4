"""CUDA units: nvcc's own plan, run by the daemon."""
