"""Widgets and styles that do not depend on chats or engines.

Theme, style sheet, icons, fields, pages, background tasks.
May import: text (tests/test_imports.py).
"""
