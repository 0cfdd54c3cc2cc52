"""Traces of routing: recorded passes, their file format and readers.

The simulator, the training and the statistics start from a trace.
May import: the lowest row only (tests/test_imports.py).
"""
