"""The database of chats: SQLite, search, import and export. Without Qt.

The window is its only writer.
May import: state and below (tests/test_imports.py).
"""
