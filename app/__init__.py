"""The window. It uses the worker's messages, and neither llama.cpp nor torch nor native code."""
