"""Languages, units and the messages of backend in the window's language.

Qt Linguist's files in `translations` are read as they are.
May import: no other package of app (tests/test_imports.py).
"""
