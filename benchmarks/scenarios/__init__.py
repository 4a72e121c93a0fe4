"""One scenario per file. Each has ``TITLE``, ``REPEAT`` (how often by default) and ``measure(repeat) -> Outcome``."""
