"""What a unit's text tells of the warm state that may serve it."""
