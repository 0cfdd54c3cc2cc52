"""Markdown, formulas and code of an answer, without Qt.

A complete block never changes.
May import: the standard library and pygments (tests/test_imports.py).
"""
