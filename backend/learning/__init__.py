"""Learning from chats: consent, recordings, and the training process.

Nothing is recorded without consent.
May import: evaluation and below (tests/test_imports.py).
"""
