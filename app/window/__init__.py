"""The main window: joins all other packages.

Arrangement of the panes, dropped files, and the second start.
May import: every package of app (tests/test_imports.py).
"""
