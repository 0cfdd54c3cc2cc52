"""Packs: a second file that holds each expert in one piece.

`file` reads, `write` writes, `offer` and `benefit` forecast the gain of a pack.
May import: weights and below (tests/test_imports.py).
"""
