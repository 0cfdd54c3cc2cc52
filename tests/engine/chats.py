"""Conversations with tiny models with recurrent layers, and the templates of their families."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from asking import of_chat
from factory import make_tiny
from reciter import with_template

from backend.engine.engine import Engine
from backend.protocol.settings import Sampling

GREEDY = Sampling(temperature=0)
TEMPLATES = Path(__file__).resolve().parents[1] / "data" / "chat-formats.zip"
FAMILIES = {
    "qwen35moe": "Qwen3.5-4B",
    "qwen3next": "Qwen3.5-4B",
    "nemotron_h_moe": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
    "lfm2moe": "LFM2-8B-A1B",
    "granitehybrid": "allenai-OLMoE-1B-7B-Instruct",
    "deepseek4": "deepseek-ai-DeepSeek-V4",
}
QUESTIONS = [f"{i}: what do foxes, wolves and owls eat in the winter?" for i in range(5)]
CHAT: list[Any] = [{"role": "user", "content": QUESTIONS[0]}]
for _i, _answer in enumerate(("They eat mice.", "They sleep, but not for long.")):
    CHAT += [{"role": "assistant", "content": _answer}]
    CHAT += [{"role": "user", "content": QUESTIONS[_i + 1]}]


def model(arch: str, folder: Path, kind: str = "Q8_0", **sizes: Any) -> Path:
    """Return a tiny model with the template of its family, or one that drops earlier thoughts."""
    name = FAMILIES.get(arch, FAMILIES["qwen35moe"])
    template = zipfile.ZipFile(TEMPLATES).read(f"{name}.jinja").decode()
    tiny = make_tiny(arch, kind, folder / "t.gguf", **sizes)
    return with_template(tiny, folder / "m.gguf", template)


def n_read(engine: Engine, messages: list[Any], n: int = 4, owner: str = "") -> int:
    """Answer a conversation. Return the tokens of the prompt that were computed."""
    list(engine.answer(of_chat(messages, GREEDY, n, owner=owner)))
    stats = engine.statistics()
    return stats.n_prompt - stats.n_reused
