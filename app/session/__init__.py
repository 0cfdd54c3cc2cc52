"""The running session: the worker, the engine's state and the conversations.

Objects with signals, no widgets.
May import: store and below (tests/test_imports.py).
"""
