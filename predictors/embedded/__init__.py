"""The recipe of the embedded model: a small MoE language model in llama.cpp's qwen3moe layout.

Steps: prepare, tokenizer, train, export, evaluate. Run `python -m predictors.embedded --help`.
"""
