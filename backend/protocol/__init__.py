"""What crosses the pipe between the engine's process and its clients.

Settings, messages, status and the client. Needs neither Qt nor an engine.
May import: gguf, methods (tests/test_imports.py).
"""
