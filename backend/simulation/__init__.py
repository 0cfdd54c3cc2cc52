"""The simulator: the same core in virtual time, from a trace.

Also charts of its results, and the advice about an answer.
May import: weights and below (tests/test_imports.py).
"""
