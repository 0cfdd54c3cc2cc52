"""Markdown, formulas and code of an answer, without Qt.

A block that is complete never changes again.
May import: the standard library and pygments (tests/test_imports.py).
"""
