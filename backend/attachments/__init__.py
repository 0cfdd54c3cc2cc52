"""Reads files that the user attaches to a question, in a child process that can be killed.

`reading` runs the child, `child` is its main module; `text_files`, `pdf` and `pictures` read the
file there. May import: protocol, system, text, pypdf in `pdf` only, charset_normalizer in
`text_files` only, and llama_cpp and PySide6 in `pictures` only (tests/test_imports.py).
"""
