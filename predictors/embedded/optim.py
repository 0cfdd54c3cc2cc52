"""Optimise matrices with Muon and the rest with Adam, on f32 masters of the working weights.

Muon: K. Jordan et al., 2024, "Muon: an optimizer for hidden layers in neural networks"; the
Newton-Schulz coefficients are theirs. Stacks of experts are orthogonalised matrix by matrix.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from predictors.embedded.config import TrainConfig
from predictors.embedded.model import Model

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
MUON_MOMENTUM = 0.95
ADAM_BETAS = (0.9, 0.95)
ADAM_EPS = 1e-10


def orthogonalise(stack: Tensor, dtype: torch.dtype) -> Tensor:
    """Push the singular values of each matrix of [n, rows, columns] towards one."""
    a, b, c = NEWTON_SCHULZ
    tall = stack.shape[1] > stack.shape[2]
    x = (stack.transpose(1, 2) if tall else stack).to(dtype)
    x = (x / (x.float().norm(dim=(1, 2), keepdim=True) + 1e-7).to(dtype)).contiguous()
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = torch.bmm(x, x.transpose(1, 2))
        poly = torch.baddbmm(gram, gram, gram, beta=b, alpha=c)
        x = torch.baddbmm(x, poly, x, beta=a, alpha=1.0)
    return x.transpose(1, 2) if tall else x


class Optimiser:
    """Hold masters and moments; `step` writes the new values into the model."""

    def __init__(self, model: Model, config: TrainConfig) -> None:
        self.config = config
        self.n_step = 0
        self.model = model
        self.parameters = dict(model.named_parameters())
        self.state: dict[str, dict[str, Tensor]] = {}
        for name, p in self.parameters.items():
            state = {
                "master": p.detach().float().clone(),
                "first": torch.zeros_like(p, dtype=torch.float32),
            }
            if not self._is_matrix(name):
                state["second"] = torch.zeros_like(p, dtype=torch.float32)
            self.state[name] = state

    @staticmethod
    def _is_matrix(name: str) -> bool:
        return name.endswith(("attn_qkv", "attn_output", "ffn_gate_up_exps", "ffn_down_exps"))

    def _matrices(self, name: str, value: Tensor) -> Tensor:
        """View a parameter as a stack of independent matrices."""
        c = self.model.config
        if name.endswith("ffn_gate_up_exps"):
            return value.view(2 * c.n_expert, c.n_ff_exp, c.n_embd)
        return value if value.dim() == 3 else value[None]

    def _muon(self, name: str, p: Tensor, lr: float) -> None:
        state, grad = self.state[name], p.grad
        assert grad is not None
        momentum = state["first"]
        momentum.lerp_(grad.float(), 1 - MUON_MOMENTUM)
        nesterov = torch.lerp(grad.float(), momentum, MUON_MOMENTUM)
        stack = self._matrices(name, nesterov)
        update = orthogonalise(stack, p.dtype)
        scale = max(1.0, stack.shape[1] / stack.shape[2]) ** 0.5
        master = state["master"]
        master.mul_(1 - lr * self.config.weight_decay)
        master.add_(update.reshape(master.shape).float(), alpha=-lr * scale)
        p.data.copy_(master)

    def _adam(self, name: str, p: Tensor, lr: float) -> None:
        state, grad = self.state[name], p.grad
        assert grad is not None
        grad = grad.float()
        first, second = ADAM_BETAS
        state["first"].lerp_(grad, 1 - first)
        state["second"].lerp_(grad.square(), 1 - second)
        step_size = lr / (1 - first**self.n_step)
        spread = (state["second"] / (1 - second**self.n_step)).sqrt_().add_(ADAM_EPS)
        state["master"].addcdiv_(state["first"], spread, value=-step_size)
        p.data.copy_(state["master"])

    @torch.no_grad()
    def step(self, lr_scale: float) -> None:
        """Update with both learning rates multiplied by `lr_scale`, and clear the gradients."""
        self.n_step += 1
        for name, p in self.parameters.items():
            if p.grad is None:
                continue
            if self._is_matrix(name):
                self._muon(name, p, self.config.muon_lr * lr_scale)
            else:
                self._adam(name, p, self.config.adam_lr * lr_scale)
            p.grad = None

    def state_dict(self) -> dict[str, Any]:
        """Return the state of a run. It includes the model's weights as masters."""
        return {"n_step": self.n_step, "state": self.state}

    def load_state_dict(self, stored: dict[str, Any]) -> None:
        """Load a stored state and write its masters into the model."""
        self.n_step = stored["n_step"]
        with torch.no_grad():
            for name, p in self.parameters.items():
                values = stored["state"][name].items()
                self.state[name] = {key: value.to(p.device) for key, value in values}
                p.data.copy_(self.state[name]["master"])
