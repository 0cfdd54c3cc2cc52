"""What the window knows, without Qt: conversation, choices, figures.

Plain data and functions; tested without a display.
May import: text (tests/test_imports.py).
"""
