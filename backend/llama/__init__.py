"""The thin layer over llama_cpp: models, contexts, samplers, chat templates.

Only this package and `engine.loading` import llama_cpp.
May import: protocol and below (tests/test_imports.py).
"""
