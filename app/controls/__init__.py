"""The bar above the conversation: model, cache rate, engine settings.

Shows what is asked for beside what is in force.
May import: library and below (tests/test_imports.py).
"""
