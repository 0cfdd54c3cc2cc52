"""Sizes and settings of the embedded model and of its training, with units in the names."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

T = TypeVar("T")

END_OF_TEXT = "<|endoftext|>"
IM_START = "<|im_start|>"
IM_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, IM_START, IM_END)  # their ids are 0, 1 and 2

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a decoder whose layers are all MoE. Names are those of GGUF metadata."""

    n_vocab: int = 6144
    n_layer: int = 8
    n_embd: int = 256
    n_head: int = 4
    n_head_kv: int = 2
    head_dim: int = 64
    n_expert: int = 32
    n_expert_used: int = 4
    n_ff_exp: int = 128
    n_ctx: int = 1024
    rope_freq_base: float = 10000.0
    rms_eps: float = 1e-6

    def __post_init__(self) -> None:
        if self.n_head % self.n_head_kv:
            raise ValueError("n_head must be a multiple of n_head_kv")
        if not 0 < self.n_expert_used <= self.n_expert:
            raise ValueError("n_expert_used must be between 1 and n_expert")

    def n_parameter(self) -> int:
        """Return the number of parameters. The output shares the embedding, which counts once."""
        attention = self.n_embd * self.head_dim * (2 * self.n_head + 2 * self.n_head_kv)
        norms = 2 * self.n_embd + 2 * self.head_dim
        experts = 3 * self.n_expert * self.n_embd * self.n_ff_exp
        layer = attention + norms + experts + self.n_embd * self.n_expert
        return self.n_layer * layer + self.n_vocab * self.n_embd + self.n_embd

    def n_active_parameter(self) -> int:
        """Return the number of parameters used for one token, including the output matrix."""
        idle = 3 * (self.n_expert - self.n_expert_used) * self.n_embd * self.n_ff_exp
        return self.n_parameter() - self.n_layer * idle


def of_shape(text: str) -> ModelConfig:
    """Return the model with "64x6" (experts, used ones), whose tokens use the default's width.

    An expert's width is a multiple of 32, as its quantisation needs. Raises ValueError.
    """
    n_expert, _, n_used = text.partition("x")
    if not (n_expert.isdigit() and n_used.isdigit() and int(n_used)):
        raise ValueError(f"the shape {text} is not EXPERTSxUSED, such as 64x6")
    default = ModelConfig()
    width = default.n_ff_exp * default.n_expert_used // int(n_used)
    return replace(
        default,
        n_expert=int(n_expert),
        n_expert_used=int(n_used),
        n_ff_exp=max(32, width // 32 * 32),
    )


def dense(config: ModelConfig) -> ModelConfig:
    """Return the dense reference: one expert as wide as all experts that a token uses."""
    wide = config.n_ff_exp * config.n_expert_used
    return replace(config, n_expert=1, n_expert_used=1, n_ff_exp=wide)


@dataclass(frozen=True)
class Stage:
    """One kind of training run. Fractions are of the run's budget of time or tokens."""

    name: str
    text_share: float  # share of text rows; the others are chats
    long_context_from: float  # fraction from which rows have n_ctx tokens
    warmup: float
    decay_from: float  # fraction from which the rate falls linearly to `FLOOR_OF_DECAY`; 1: never


# Pretraining ends at the full rate so that it can be continued. The rate falls in the chats' run.
PRETRAIN = Stage("pretrain", 1.0, long_context_from=0.6, warmup=0.01, decay_from=1.0)
# Text among the chats prevents forgetting.
INSTRUCT = Stage("instruct", 0.25, long_context_from=0.8, warmup=0.01, decay_from=0.1)
# A reference has no chats: the comparison is of bits per byte, before and after the decay.
ALONE = Stage("alone", 1.0, long_context_from=0.8, warmup=0.01, decay_from=0.8)
STAGES = {stage.name: stage for stage in (PRETRAIN, INSTRUCT, ALONE)}
FLOOR_OF_DECAY = 0.01


@dataclass(frozen=True)
class TrainConfig:
    """Budget and rates of one run. The budget is in minutes, or in tokens unless that is 0."""

    budget_minutes: float = 60.0
    budget_tokens: int = 0
    batch_tokens: int = 8192  # 16384 needs 1.5 times the tokens for the same loss
    short_context: int = 512
    rate: float = 1.0  # multiplies both learning rates; use 0.6 to continue a run
    muon_lr: float = 0.02
    adam_lr: float = 0.003
    weight_decay: float = 0.02
    balance_weight: float = 0.08  # of the mean over layers; 0.02 left a third of layer 0 idle
    seed: int = 1


def from_dict(cls: type[T], values: dict[str, Any]) -> T:
    """Build a config from a stored dictionary. Ignore keys of other versions."""
    known = {field.name for field in fields(cls)}  # type: ignore[arg-type]
    return cls(**{key: value for key, value in values.items() if key in known})
