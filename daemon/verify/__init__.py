"""Samples: the idle daemon compares what warm state made with what stock would have made."""
