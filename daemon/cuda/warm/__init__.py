"""The warm state of CUDA units: levels of fork servers, and the precompiled header of the host."""
