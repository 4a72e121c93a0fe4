"""What a call costs, layer by layer, on the same arguments (``warmcc bench call``)."""
