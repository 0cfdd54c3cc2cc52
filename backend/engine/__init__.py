"""The engine: load a model, apply a plan, compute passes, measure.

`engine.Engine` is the public face.
May import: memory, llama, packs and below (tests/test_imports.py).
"""
