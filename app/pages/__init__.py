"""Pages that cover the conversation: settings, diagnostics, keys, about.

Each page is one module.
May import: controls and below (tests/test_imports.py).
"""
