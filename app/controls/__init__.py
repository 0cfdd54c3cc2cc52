"""The bar above the conversation: model, cache rate, engine settings.

Shows the settings asked for beside those in force. May import: library and below
(tests/test_imports.py).
"""
