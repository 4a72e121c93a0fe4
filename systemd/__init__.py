"""The units, as data: ``warmcc install-service`` fills in ``@PYTHON@`` and puts them where systemd
looks.
"""
