"""Settings that outlive the window, and how they take effect.

One small JSON file in the user's configuration folder.
May import: session and below (tests/test_imports.py).
"""
