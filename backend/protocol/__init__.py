"""The pipe between the engine's process and its clients: settings, messages, status, client.

Needs neither Qt nor an engine.
May import: gguf, methods (tests/test_imports.py).
"""
