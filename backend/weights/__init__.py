"""Weights of predictors: the file format, and the look-up for a model.

`four_bits` is the rounding that a file uses.
May import: traces, methods (tests/test_imports.py).
"""
