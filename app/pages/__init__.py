"""Pages in place of the chat: settings, diagnostics, shortcuts, about.

Each page is one module.
May import: controls and below (tests/test_imports.py).
"""
