"""Plans: what fits into memory, and where it goes.

Pure arithmetic over a model file and the free memory; watching memory while it runs.
May import: protocol and below (tests/test_imports.py).
"""
