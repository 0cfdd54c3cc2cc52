"""Model files: the header, its checks, and tensor tables.

A file is checked here before llama.cpp sees it. A refusal names the field.
May import: system (tests/test_imports.py).
"""
