"""Methods of caching: which parts predict, evict, schedule and allocate.

The catalogue is data; `compose` builds the native composition from it.
May import: the lowest row only (tests/test_imports.py).
"""
