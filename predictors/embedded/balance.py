"""Balance the use of experts on plain text after the chats' run, by a bias on the router.

The auxiliary loss balances the use over a batch. Most rows of a batch are chats, so some experts
come to serve chats alone. llama.cpp's qwen3moe router has no bias. But least squares finds a
direction w along which all router inputs on text are nearly 1: adding b w to an expert's row of
the router adds about b to its logit. The bias grows while an expert is used too little, as in Wang
et al., 2024, "Auxiliary-Loss-Free Load Balancing Strategy for Mixture-of-Experts", section 3. We
do this once, after training.
"""

from __future__ import annotations

from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor

from predictors.embedded import checkpoint, tokenizer
from predictors.embedded.config import ModelConfig, from_dict
from predictors.embedded.data import TextStream, text_tokens
from predictors.embedded.model import Layer, Model, norm_and_route

LEAST_SHARE = 0.6  # of an even share, on training text; lower on held-out text
LEAST_SHARE_LAST = 0.75  # in the last layer, which falls much lower on held-out text
STEP = 0.2
MAX_STEPS = 200
N_ROWS, ROW_TOKENS = 64, 512


def shares(rows: Tensor, router: Tensor, n_used: int) -> Tensor:
    """Return each expert's use relative to an even share; rows [n, d], router [expert, d]."""
    chosen = torch.topk(rows @ router.t(), n_used, dim=-1).indices
    count = torch.bincount(chosen.reshape(-1), minlength=len(router)).float()
    return count * len(router) / chosen.numel()


def constant_direction(rows: Tensor) -> Tensor:
    """Return the w [d] for which rows @ w is nearest to 1 by least squares, and 1 on average."""
    square = rows.t() @ rows / len(rows)
    ridge = 1e-4 * square.diagonal().mean() * torch.eye(len(square))
    w = torch.linalg.solve(square + ridge, rows.mean(0))
    even: Tensor = w / (rows @ w).mean()
    return even


@torch.no_grad()
def even_out(
    model: Model, tokens: Tensor, least: float = LEAST_SHARE, last: float = LEAST_SHARE_LAST
) -> list[int]:
    """Change the routers until every expert gets a share of `least` on tokens [batch, rows].

    In the last layer every expert gets `last`. Layers are changed in order, so that each one sees
    the output of the new routers before it. Return the number of steps of each layer.
    """
    c, n_steps = model.config, []
    cos, sin = model.cos[: tokens.shape[1]], model.sin[: tokens.shape[1]]
    x: Tensor = F.embedding(tokens, model.token_embd).float()
    for number, layer in enumerate(model.layers):
        assert isinstance(layer, Layer)
        wanted = last if number == c.n_layer - 1 else least
        x = torch.add(x, layer.attend(x, cos, sin))
        router = layer.ffn_gate_inp
        rows, _ = norm_and_route(x.reshape(-1, c.n_embd), layer.ffn_norm, router, c.rms_eps)
        direction = constant_direction(rows)
        n_step = 0
        while n_step < MAX_STEPS:
            share = shares(rows, router, c.n_expert_used)
            lack = (wanted / share.clamp(min=1e-3)).log().clamp(min=0)
            if not lack.any():
                break
            router.add_(lack[:, None] * direction, alpha=STEP)
            n_step += 1
        n_steps.append(n_step)
        x = torch.add(x, layer.mix(x)[0])
    return n_steps


def balance(work: Path) -> list[int]:
    """Balance the checkpoint's routers on training text. Return the steps of each layer."""
    stored = checkpoint.load(work)
    if stored is None:
        raise FileNotFoundError(f"no checkpoint under {work}; run the step pretrain first")
    model = Model(from_dict(ModelConfig, stored["model_config"]), torch.float32)
    state = stored["optimiser"]["state"]
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(state[name]["master"])
    text = TextStream(text_tokens(work, tokenizer.load(work), seed=1), seed=1)
    tokens = torch.from_numpy(text.take(N_ROWS, min(ROW_TOKENS, model.config.n_ctx))[:, :-1])
    n_steps = even_out(model, tokens)
    for name, p in model.named_parameters():
        if name.endswith("ffn_gate_inp"):
            state[name]["master"] = p.detach().clone()
    checkpoint.save(work, stored)
    return n_steps
