"""Chats on disk: SQLite, one file, written by one window. Nothing here knows Qt."""
