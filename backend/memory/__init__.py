"""Plan how much of a model fits into memory, and where; watch memory at run time.

Plans are pure arithmetic over a model file and the free memory.
May import: protocol and below (tests/test_imports.py).
"""
