"""The engine's process: reads requests, runs the engine, writes events.

`main` owns the threads; each request kind has one handler.
May import: everything but cli (tests/test_imports.py).
"""
