"""The conversation: page, transcript, answers, composer.

`markdown` splits an answer into blocks, without Qt.
May import: settings and below (tests/test_imports.py).
"""
