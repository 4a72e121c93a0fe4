"""warmcc behind torch's own names, for code that you do not edit: in this process (``patches``), in
each Python that a command starts (``children``), and in all of a virtual environment (``venv``)."""
