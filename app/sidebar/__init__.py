"""The list of chats beside the conversation.

Search, pins, renaming, import and export.
May import: settings and below (tests/test_imports.py).
"""
