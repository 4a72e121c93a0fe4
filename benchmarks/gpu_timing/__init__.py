"""Do kernels take as long in a program of ``warmcc run`` as in a fresh python?"""
