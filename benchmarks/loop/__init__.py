"""The daily work of a model that writes kernels: calls that come as such models make them, with
their flags, mistakes, repeats and small edits, from one caller or several, by stock and by warmcc.
"""
