"""The reference model's modules: one named module per matmul, with linear layers and `@` only.

Counters identify a matmul by the module that runs it, so a module's name is the path of a ledger line.
Shapes: x is (batch, tokens, hidden); heads are (batch, heads, tokens, head size).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from tfacct.architecture import parts
from tfacct.reference.part_module import PartModule


def through(module: Any, x: Tensor) -> Tensor:
    """`x`, through the module if there is one."""
    return x if module is None else module(x)


class Linear(nn.Linear):
    """Matmul with a weight. The code that runs it sets its values; on meta it has none."""

    def reset_parameters(self) -> None:
        pass


class Unused(nn.Module):
    """The weight and bias of a matmul that never runs."""

    def __init__(self, inputs: int, outputs: int, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs))
        self.bias = nn.Parameter(torch.empty(outputs)) if bias else None


class BatchedProduct(nn.Module):
    """A matmul of several groups of vectors with one matrix each, which counters see as one."""

    def counted(self, out: Tensor) -> tuple[int, int, int, int]:
        """Rows, inner size, columns and number of these matmuls, from their result."""
        raise NotImplementedError


class Work(nn.Module):
    """Pointwise work, a line of the ledger without a matmul."""


class Weighted(Work):
    """Pointwise work with a learned number for each head or channel."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))


class Times(Work):
    """One tensor times another: values and their gates, or scores and their weights."""

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return x * other


class Embedding(nn.Embedding):
    """An embedding."""

    def reset_parameters(self) -> None:
        pass


class Vector(nn.Module):
    """A learned vector, which another module reads, or only pretraining, such as that of masked tokens."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(size))


class Scale(Work):
    """Multiplication by a constant."""

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class Tokens(Embedding):
    """The token embedding, projected to the hidden size and scaled if the part requires it.

    A shared embedding gets its weight from its owner.
    """

    def __init__(self, part: parts.Embedding) -> None:
        rows = part.vocab if part.rows is None else part.rows
        super().__init__(rows, part.hidden if part.width is None else part.width)
        self.project = None if part.width is None else Linear(part.width, part.hidden, bias=part.bias)
        factor = part.hidden**0.5 if part.factor is None else part.factor
        self.scale = Scale(factor) if part.scaled else None
        self.late = part.late

    def forward(self, tokens: Tensor) -> Tensor:
        rows = super().forward(tokens)
        rows = rows if self.late else through(self.project, rows)
        return through(self.scale, rows)

    def widened(self, rows: Tensor) -> Tensor:
        """Embeddings after the norm, projected to the hidden size."""
        return through(self.project, rows) if self.late else rows


class Softcap(Work):
    """Soft-capped values, cap · tanh(x · factor / cap). "Gemma 2" (arXiv 2408.00118), section 2, and its class."""

    def __init__(self, cap: float, factor: float = 1.0) -> None:
        super().__init__()
        self.cap, self.factor = cap, factor

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(x * (self.factor / self.cap)) * self.cap


class Head(Linear):
    """Logits of all tokens, or of the last one."""

    def __init__(self, part: parts.Head, last: bool) -> None:
        wide = part.hidden if part.width is None else part.width
        rows = wide if part.output_width is None else part.output_width
        super().__init__(rows, part.vocab, bias=part.bias)
        self.project = self.transform = self.act = self.norm = None
        self.scale = None if part.scale is None else Scale(part.scale)
        if part.transform is not None:
            self.transform = Linear(part.hidden, rows, bias=part.transform_bias)
            self.act, self.norm = Activation(part.transform), LayerNorm((rows,), part.eps, bias=part.norm_bias)
        elif part.width is not None:
            self.project = Linear(part.hidden, part.width, bias=False)
        self.logit_scale = None if part.logit_scale is None else Scale(part.logit_scale)
        self.softcap = None if part.softcap is None else Softcap(part.softcap)
        self.last = last

    def forward(self, x: Tensor) -> Tensor:
        rows = through(self.project, x)
        rows = rows[:, -1:] if self.last else rows
        for before in (self.scale, self.transform, self.act, self.norm):
            rows = through(before, rows)
        return through(self.softcap, through(self.logit_scale, self._logits(rows)))

    def _logits(self, rows: Tensor) -> Tensor:
        return super().forward(rows)


class Product(nn.Module):
    """A matmul of two activations: every query head with its view of the shared key/value head."""

    def __init__(self, group: int) -> None:
        super().__init__()
        self.group = group

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return left @ right.unsqueeze(2).expand(-1, -1, self.group, -1, -1).flatten(1, 2)


class Add(Work):
    """A sum of two tensors."""

    def forward(self, x: Tensor, other: Tensor) -> Tensor:
        return x + other


class Minus(Work):
    """The change from one tensor to another: by a layer, or from what a state has at a key to its new value."""

    def forward(self, x: Tensor, before: Tensor) -> Tensor:
        return x - before


class RMSNorm(Work):
    """RMSNorm: x / rms(x), scaled. `less_one`: the weight is the scale less 1 (transformers' GemmaRMSNorm)."""

    def __init__(self, hidden: int, eps: float, less_one: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(hidden))
        self.hidden, self.eps, self.less_one = hidden, eps, less_one

    def forward(self, x: Tensor) -> Tensor:
        scale = self.weight + 1 if self.less_one else self.weight
        return nn.functional.rms_norm(x, (self.hidden,), scale, self.eps)


class LetThrough(Work):
    """A value times the token's gate."""

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        return torch.sigmoid(gate) * x


class GatedRMSNorm(RMSNorm):
    """RMSNorm with its result multiplied by the sigmoid of a low-rank projection of it (transformers'
    AXK2GatedRMSNorm)."""

    def __init__(self, hidden: int, eps: float, rank: int) -> None:
        super().__init__(hidden, eps)
        self.gate_down, self.act = Linear(hidden, rank, bias=False), Activation("silu")
        self.gate_up, self.gate = Linear(rank, hidden, bias=False), LetThrough()

    def forward(self, x: Tensor) -> Tensor:
        normed = super().forward(x)
        return self.gate(normed, self.gate_up(self.act(self.gate_down(normed))))


class ScaledFirst(RMSNorm):
    """RMSNorm of an input scaled by 1 + weight (transformers' MuseSparkTextInputScaledRMSNorm)."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x * (1 + self.weight), (self.hidden,), None, self.eps)


class PlainRMSNorm(Work):
    """RMSNorm without a weight: x / rms(x) (transformers' Llama4TextL2Norm)."""

    def __init__(self, hidden: int, eps: float) -> None:
        super().__init__()
        self.hidden, self.eps = hidden, eps

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.rms_norm(x, (self.hidden,), None, self.eps)


class LayerNorm(nn.LayerNorm):
    """LayerNorm: (x − mean) / deviation, scaled and shifted."""

    def reset_parameters(self) -> None:
        pass


class LayerNormAroundOne(LayerNorm):
    """LayerNorm whose weight is the scale less 1 (transformers' NemotronLayerNorm1P)."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.layer_norm(x, self.normalized_shape, self.weight + 1, self.bias, self.eps)


def norm(part: parts.Norm) -> nn.Module:
    """LayerNorm or RMSNorm."""
    if part.kind == "rms" and part.learned == "none":
        return PlainRMSNorm(part.hidden, part.eps)
    if part.kind == "layer":
        learned = part.learned != "none"
        made = LayerNormAroundOne if part.less_one else LayerNorm
        return made((part.hidden,), part.eps, elementwise_affine=learned, bias=part.learned == "both")
    if part.scales_first:
        return ScaledFirst(part.hidden, part.eps)
    if isinstance(part, parts.GatedNorm):
        return GatedRMSNorm(part.hidden, part.eps, part.gate_rank)
    return RMSNorm(part.hidden * 2 if part.joined else part.hidden, part.eps, part.less_one)


def relu2(x: Tensor) -> Tensor:
    """The square of a ReLU."""
    return nn.functional.relu(x).square()


def quick_gelu(x: Tensor) -> Tensor:
    """CLIP's approximation of GELU."""
    return x * torch.sigmoid(x * 1.702)


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": nn.functional.gelu,
    "gelu_fast": partial(nn.functional.gelu, approximate="tanh"),
    "gelu_new": partial(nn.functional.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(nn.functional.gelu, approximate="tanh"),
    "quick_gelu": quick_gelu,
    "relu": nn.functional.relu,
    "relu2": relu2,
    "silu": nn.functional.silu,
    "swigluoai": quick_gelu,
    "swish": nn.functional.silu,
    "tanh": torch.tanh,
}
"""Activations by config name."""


class Activation(Work):
    """The activation of one projection, or of a gate times the up projection.

    An unknown name stands for any activation: on meta all have the same shape, and elsewhere `build` raises an error.
    That of gpt-oss clamps both, and adds 1 to the up projection (transformers' GptOssExperts). `bound`: both are
    clamped (DeepseekV4Experts).
    """

    BOUND = 7.0

    def __init__(self, name: str, bound: float | None = None) -> None:
        super().__init__()
        self.bound = bound
        self.function, self.bounded = ACTIVATIONS.get(name, nn.functional.silu), name == "swigluoai"

    def forward(self, x: Tensor, gate: Tensor | None = None) -> Tensor:
        if gate is not None and self.bounded:
            return self.function(gate.clamp(max=self.BOUND)) * (x.clamp(-self.BOUND, self.BOUND) + 1)
        if gate is not None and self.bound is not None:
            return self.function(gate.clamp(max=self.bound)) * x.clamp(-self.bound, self.bound)
        return self.function(x) if gate is None else self.function(gate) * x


class ChannelScale(Weighted):
    """Each channel times its own factor."""

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight


class FeedForward(PartModule):
    """An MLP: up, activation, down, with a gate if the part is gated, and a norm before them if it has one.

    An MLP that is never called only has weights.
    """

    def __init__(self, part: parts.FeedForward) -> None:
        super().__init__()
        made = Linear if part.called else Unused
        self.called = part.called
        self.norm = None if part.norm is None else norm(parts.Norm(hidden=part.hidden, kind=part.norm, eps=part.eps))
        self.gate_proj = made(part.hidden, part.width, bias=part.bias) if part.gated else None
        self.gate_scale = None if part.gate_scale is None else Scale(part.gate_scale)
        self.up_proj = made(part.hidden, part.width, bias=part.bias)
        self.act: nn.Module = Activation(part.activation)
        self.inner_norm = None if part.inner_norm is None else RMSNorm(part.width, part.inner_norm)
        self.down_proj = made(part.width, part.hidden, bias=part.bias or part.down_bias)
        self.channel_scale = ChannelScale(part.hidden) if part.channel_scale else None

    def forward(self, x: Tensor) -> Tensor:
        x = through(self.norm, x)
        gate = None if self.gate_proj is None else through(self.gate_scale, self.gate_proj(x))
        inner = self.act(self.up_proj(x), gate)
        out: Tensor = self.down_proj(through(self.inner_norm, inner))
        return through(self.channel_scale, out)
