"""The main window: joins all other packages.

Arrangement of the panes, and files dropped on them.
May import: every package of app (tests/test_imports.py).
"""
