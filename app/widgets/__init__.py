"""Widgets and looks that know nothing of chats or engines.

Theme, style sheet, icons, fields, pages, background tasks.
May import: text (tests/test_imports.py).
"""
