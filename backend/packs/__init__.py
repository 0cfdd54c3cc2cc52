"""Packs: a second file that holds each expert in one piece.

`file` reads, `write` writes, `offer` and `benefit` say what a pack would bring.
May import: weights and below (tests/test_imports.py).
"""
