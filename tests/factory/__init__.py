"""Write small random GGUF models for tests, and large ones for measurements.

From the command line, with `tests` on PYTHONPATH:

    python -m factory qwen3moe Q4_0 tiny.gguf
    python -m factory large large.gguf
    python -m factory large --layers 48 whole.gguf
"""

from .blocks import random_data
from .layout import Geometry
from .published import PUBLISHED
from .recurrent import PUZZLE
from .stock import llama_architectures, logits_of_each, routed_experts, stock_logits
from .vision import N_IMAGE_TOKEN, make_mmproj, make_png
from .vocabulary import CHAT_TEMPLATE, tiny_vocabulary
from .writing import (
    ARCHITECTURES,
    CACHEABLE,
    DENSE,
    MADE,
    QUANTS,
    REQUIRED_ARCHITECTURES,
    can_predict,
    chain,
    make_large,
    make_published,
    make_split,
    make_tiny,
    spoil,
    supported,
)

__all__ = [
    "ARCHITECTURES",
    "CACHEABLE",
    "CHAT_TEMPLATE",
    "DENSE",
    "MADE",
    "N_IMAGE_TOKEN",
    "PUBLISHED",
    "PUZZLE",
    "QUANTS",
    "REQUIRED_ARCHITECTURES",
    "Geometry",
    "can_predict",
    "chain",
    "llama_architectures",
    "logits_of_each",
    "make_large",
    "make_mmproj",
    "make_png",
    "make_published",
    "make_split",
    "make_tiny",
    "random_data",
    "routed_experts",
    "spoil",
    "stock_logits",
    "supported",
    "tiny_vocabulary",
]
