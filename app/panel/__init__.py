"""The live view of the engine: map, bars, time line, verdict.

It only draws; the figures come from the worker.
May import: settings and below (tests/test_imports.py).
"""
