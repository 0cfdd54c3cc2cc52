"""The live view of the engine: map, bars, time line, verdict.

It was named `engine` before; it draws and computes nothing.
May import: settings and below (tests/test_imports.py).
"""
