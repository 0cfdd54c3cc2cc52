"""Train DuoServe-MoE's ExpertMLP (section 4): one network of seven layers for all model layers.

This and the recipe of the embedded model are all that needs torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from backend.traces.trace import Trace
from backend.weights.file import PredictorSizes, PredictorWeights
from predictors import tables
from predictors.routings import Routings

WIDTHS = (2048, 1024, 512, 256, 128, 64)
"""Widths of the hidden layers. The paper says "from 2048 down to 64"; we halve at each layer."""
DROPOUT = 0.1
BATCH = 512
RATE = 1e-3


class Features:
    """Compute the network's inputs: history of the choices, popularity and affinity."""

    def __init__(self, data: Routings, traces: Sequence[Trace]) -> None:
        counts = torch.from_numpy(tables.popularity_counts(traces))
        pairs = torch.from_numpy(tables.pair_counts(traces))
        self.sizes = data.sizes
        self.ids = torch.from_numpy(data.ids).long()
        self.routed = torch.from_numpy(data.routed)
        self.popularity = counts / counts.sum(1, keepdim=True).clamp(min=1)  # Eq. 2
        self.affinity = pairs / pairs.sum(2, keepdim=True).clamp(min=1)  # Eq. 3

    @property
    def width(self) -> int:
        """Return the number of values of one input."""
        s: PredictorSizes = self.sizes
        return (s.n_layer - 1) * s.n_expert_used + 2 * s.n_expert

    def batch(self, rows: Tensor, layers: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (inputs, targets, known) for some tokens.

        rows: [n] token numbers; layers: [n] layers to predict, from 1. inputs: [n, width];
        targets: [n, E]; known: [n], 1 where the layer computed the token.
        """
        s = self.sizes
        chosen = self.ids[:-1, rows].transpose(0, 1)  # [batch, L - 1, k]
        is_past = torch.arange(s.n_layer - 1) < layers[:, None]
        history = ((chosen + 1) / s.n_expert) * is_past.unsqueeze(-1)
        last = self.ids[layers - 1, rows]
        affinity = self.affinity[layers.unsqueeze(1), last].mean(1)
        inputs = torch.cat([history.flatten(1), self.popularity[layers], affinity], 1)
        target = torch.zeros(len(rows), s.n_expert)
        target.scatter_(1, self.ids[layers, rows], 1.0)
        return inputs, target, self.routed[layers, rows].float()


def network(n_input: int, n_expert: int) -> nn.Sequential:
    """Return six blocks of linear, batch norm, ReLU and dropout, then a linear to the experts."""
    parts: list[nn.Module] = []
    for n_output in WIDTHS:
        parts += [nn.Linear(n_input, n_output), nn.BatchNorm1d(n_output), nn.ReLU()]
        parts.append(nn.Dropout(DROPOUT))
        n_input = n_output
    return nn.Sequential(*parts, nn.Linear(n_input, n_expert))


def train(
    traces: Sequence[Trace],
    *,
    minutes: float,
    epochs: int,
    progress: Callable[[float, str], None],
    seed: int = 1,
) -> PredictorWeights:
    """Train with binary cross-entropy (Eq. 6). Return the epoch that is best on held-out requests.

    Raise ValueError for a model of one layer.
    """
    torch.manual_seed(seed)
    torch.set_num_threads(1)
    data = Routings.of(traces)
    features = Features(data, traces)
    n_layer = data.sizes.n_layer
    if n_layer < 2:
        raise ValueError("ExpertMLP predicts later layers, and this model has one only.")
    train_rows, held_out = map(torch.from_numpy, data.split())
    model = network(features.width, data.sizes.n_expert)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE)
    n_step = max(len(train_rows) * (n_layer - 1) // BATCH, 1)
    began_s, best, best_state = time.monotonic(), -1.0, model.state_dict()
    for epoch in range(epochs):
        model.train()
        for step in range(n_step):
            done = max(
                (epoch + step / n_step) / epochs, (time.monotonic() - began_s) / (60 * minutes)
            )
            if done >= 1:
                break
            for group in optimiser.param_groups:
                group["lr"] = RATE * (1 - done)
            rows = train_rows[torch.randint(len(train_rows), (BATCH,))]
            layers = torch.randint(1, n_layer, (BATCH,))
            inputs, target, known = features.batch(rows, layers)
            losses = nn.functional.binary_cross_entropy_with_logits(
                model(inputs), target, reduction="none"
            ).sum(1)
            loss = (losses * known).mean()
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            if step % 10 == 0:
                progress(done, f"epoch {epoch + 1} of {epochs}, {max(best, 0):.1%} right")
        shares = _accuracy(model, features, held_out)
        if (mean := sum(shares) / len(shares)) > best:
            best = mean
            best_state = {name: value.clone() for name, value in model.state_dict().items()}
        if done >= 1:
            break
    model.load_state_dict(best_state)
    shares = _accuracy(model, features, held_out)
    arrays = _folded(model)
    arrays["popularity"] = features.popularity.numpy()
    arrays["affinity"] = features.affinity.numpy()
    about = {
        "torch": torch.__version__.split("+")[0],
        "accuracy_by_stride_and_layer": {
            "1": {str(i + 1): round(share, 4) for i, share in enumerate(shares)}
        },
    }
    return PredictorWeights("expert_mlp", data.sizes, arrays, {}, about)


@torch.no_grad()
def _accuracy(model: nn.Module, features: Features, rows: Tensor) -> list[float]:
    """Return, for each layer from 1, the share of the k best experts that were chosen."""
    model.eval()
    n_used = features.sizes.n_expert_used
    found = []
    rows = rows[:8192]
    for layer in range(1, features.sizes.n_layer):
        inputs, target, known = features.batch(rows, torch.full((len(rows),), layer))
        best = model(inputs).topk(n_used, 1).indices
        right = target.gather(1, best).mean(1)
        found.append(float((right * known).sum() / known.sum().clamp(min=1)))
    return found


def _folded(model: nn.Sequential) -> dict[str, np.ndarray]:
    """Return w0, b0, w1, ... with each batch norm folded into the linear layer before it."""
    arrays = {}
    parts = list(model)
    products = [i for i, part in enumerate(parts) if isinstance(part, nn.Linear)]
    for number, i in enumerate(products):
        product = parts[i]
        assert isinstance(product, nn.Linear)
        weight, bias = product.weight.detach(), product.bias.detach()
        norm = parts[i + 1] if i + 1 < len(parts) else None
        if isinstance(norm, nn.BatchNorm1d):
            assert norm.running_var is not None and norm.running_mean is not None
            factor = norm.weight.detach() / torch.sqrt(norm.running_var + norm.eps)
            weight = weight * factor.unsqueeze(1)
            bias = (bias - norm.running_mean) * factor + norm.bias.detach()
        arrays[f"w{number}"] = weight.numpy().astype(np.float32)
        arrays[f"b{number}"] = bias.numpy().astype(np.float32)
    return arrays
