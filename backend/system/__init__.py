"""What differs by operating system, and small files.

Memory, cores, folders, pipes, child processes.
May import: nothing of backend (tests/test_imports.py).
"""
