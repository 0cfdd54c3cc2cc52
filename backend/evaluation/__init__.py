"""Measurements of correctness: predictors against traces, logits against llama.cpp.

Runs by hand or from the command line; the window never needs it.
May import: engine, simulation and below (tests/test_imports.py).
"""
