"""Models on this machine and models to download.

Views on backend.library and backend.downloads.
May import: settings and below (tests/test_imports.py).
"""
