"""The operating system: memory, cores, folders, pipes, child processes, small files.

May import: nothing of backend (tests/test_imports.py).
"""
