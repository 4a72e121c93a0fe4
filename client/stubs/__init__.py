"""Stubs for editors and type checkers: the ``.pyi`` of an extension that was built.

What pybind11 writes into the docstrings of a loaded module is what its functions accept. So the
module is loaded, in a process that ends afterwards (``child``), and its docstrings are read
(``docstrings``), translated (``annotations``) and written down (``writer``). ``parameters`` finds
names that only the C++ source knows.
"""
