"""The systemd units, as data; ``warmcc install-service`` fills in ``@PYTHON@``."""
