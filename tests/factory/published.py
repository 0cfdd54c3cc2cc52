"""Sizes of published models, as their configurations state them, for models of random weights."""

from __future__ import annotations

from .layout import Value

_GPT_OSS: dict[str, Value] = {
    "n_embd": 2880, "n_head": 64, "n_head_kv": 8, "head_dim": 64, "n_ff": 2880, "n_ff_exp": 2880,
    "n_expert_used": 4, "n_window": 128, "n_vocab": 201088, "n_ctx": 131072,
}  # fmt: skip
_QWEN: dict[str, Value] = {
    "n_embd": 2048, "n_head": 16, "n_head_kv": 2, "head_dim": 256, "n_ff": 512, "n_ff_exp": 512,
    "n_ff_shexp": 512, "period": 4, "n_state": 128, "n_k_head": 16, "n_v_head": 32,
    "n_ctx": 262144,
}  # fmt: skip
_MIXTURE: dict[str, Value] = {"n_expert": 128, "n_expert_used": 8, "period": 4, "n_ctx": 262144}

PUBLISHED: dict[str, tuple[str, str, dict[str, Value]]] = {
    "Gemma 4 26B-A4B": ("gemma4", "Q4_0", {
        "n_layer": 30, "n_embd": 2816, "n_head": 16, "n_head_kv": 8, "head_dim": 256,
        "n_head_kv_whole": 2, "head_dim_whole": 512, "n_ff": 2112, "n_ff_exp": 704,
        "n_expert": 128, "n_expert_used": 8, "n_window": 1024, "period": 6, "n_vocab": 262144,
        "n_ctx": 262144, "tied": True,
    }),
    "gpt-oss-20b": ("gpt-oss", "MXFP4", {**_GPT_OSS, "n_layer": 24, "n_expert": 32}),
    "gpt-oss-120b": ("gpt-oss", "MXFP4", {**_GPT_OSS, "n_layer": 36, "n_expert": 128}),
    "Step 3.5 Flash": ("step35", "Q4_0", {
        **_MIXTURE, "n_layer": 45, "n_embd": 4096, "n_head": 64, "n_head_kv": 8,
        "head_dim": 128, "n_head_windowed": 96, "n_ff": 11264, "n_ff_exp": 1280,
        "n_ff_shexp": 1280, "n_expert": 288, "n_dense": 3, "n_window": 512, "n_vocab": 128896,
    }),
    "K-EXAONE 236B-A23B": ("exaone-moe", "Q4_0", {
        **_MIXTURE, "n_layer": 48, "n_embd": 6144, "n_head": 64, "n_head_kv": 8, "head_dim": 128,
        "n_ff": 18432, "n_ff_exp": 2048, "n_window": 128, "n_vocab": 153600,
    }),
    "Trinity Mini": ("afmoe", "Q4_0", {
        **_MIXTURE, "n_layer": 32, "n_embd": 2048, "n_head": 32, "n_head_kv": 4, "head_dim": 128,
        "n_ff": 6144, "n_ff_exp": 1024, "n_dense": 2, "n_window": 2048, "n_vocab": 200192,
        "n_ctx": 131072,
    }),
    "Qwen3.6-35B-A3B": ("qwen35moe", "Q4_0", {
        **_QWEN, "n_layer": 40, "n_expert": 256, "n_expert_used": 8, "n_vocab": 248320,
    }),
    "Qwen3-Next-80B-A3B": ("qwen3next", "Q4_0", {
        **_QWEN, "n_layer": 48, "n_expert": 512, "n_expert_used": 10, "n_vocab": 151936,
    }),
}  # fmt: skip
"""By name: the architecture, the type of the experts, and fields of Geometry."""
