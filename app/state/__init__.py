"""The data of the window without Qt: conversation, settings, figures.

Plain data and functions; tested without a display.
May import: text (tests/test_imports.py).
"""
