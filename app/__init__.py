"""The window. It knows the worker's messages and nothing of llama.cpp, torch or native code."""
