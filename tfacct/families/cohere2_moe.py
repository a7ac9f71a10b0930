"""Cohere's models with experts: Command A's block and windows; dense networks in the first layers, experts behind."""

from dataclasses import replace
from typing import ClassVar

from tfacct.architecture.parts import Experts, FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Real, Switch, UpTo, Word, shown
from tfacct.families._cohere_like import CohereLike
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, check_active, dense_or_sparse
from tfacct.families._layers import LayerTypes, windows
from tfacct.families.mistral import Window

RELEASED = "2026-05"

CHOICES = {"expert_selection_fn": ("softmax", "sigmoid"), "shared_expert_combination_strategy": ("sum", "average")}
"""What the class knows."""


class Config(CohereLike):
    """`Cohere2MoeConfig`, with its class's defaults, sizes too. intermediate_size is the width of one expert."""

    head_dim: Count = 128
    rms_norm_eps: Real | None = None  # type: ignore[assignment]
    sliding_window: Window | None = 4096
    layer_types: LayerTypes | None = None
    sliding_window_pattern: Count = 4
    prefix_dense_sliding_window_pattern: Count = 1
    prefix_dense_intermediate_size: Count | None = None
    first_k_dense_replace: UpTo = 0
    mlp_layer_types: LayerNetworks | None = None
    num_experts: Count = 8
    num_experts_per_tok: Count = 2
    num_shared_experts: UpTo = 0
    expert_selection_fn: Word = "softmax"
    shared_expert_combination_strategy: Word = "average"
    norm_topk_prob: Switch = True

    stems: ClassVar = ("Cohere2Moe",)
    uncounted: ClassVar = CohereLike.uncounted | {*CHOICES, "norm_topk_prob"}
    harmless: ClassVar = CohereLike.harmless | {"_sliding_window_pattern"}
    hf_paths: ClassVar = {
        **{ours: their for ours, their in CohereLike.hf_paths.items() if ours != "blocks.*.mlp_norm"},
        **BESIDE_PATHS,
    }
    hf_tensors: ClassVar = ROUTED_TENSORS

    def norm(self) -> Norm:
        """RMSNorm where rms_norm_eps is given, else Cohere's."""
        eps = self.rms_norm_eps
        return CohereLike.norm(self) if eps is None else Norm(hidden=self.hidden_size, kind="rms", eps=eps)

    def experts(self) -> Experts:
        """Experts, beside a shared network where there is one. Raises ConfigError."""
        check_active(self.num_experts_per_tok, self.num_experts, ("num_experts_per_tok", "num_experts"))
        for name, known in CHOICES.items():
            if getattr(self, name) not in known:
                raise ConfigError(f"{name} = {shown(getattr(self, name))}: the class knows {' and '.join(known)} only")
        sums = self.expert_selection_fn == "sigmoid" and self.norm_topk_prob
        return Experts(
            hidden=self.hidden_size,
            experts=self.num_experts,
            active=self.num_experts_per_tok,
            width=self.intermediate_size,
            shared=self.num_shared_experts * self.intermediate_size or None,
            activation=self.activation,
            scoring=self.expert_selection_fn,
            scaling=1.0 if sums else None,
        )

    def dense(self) -> FeedForward:
        """The network of the first layers."""
        width = self.prefix_dense_intermediate_size or self.intermediate_size
        return replace(self.feed_forward(), width=width)

    def slides(self, number: int) -> bool:
        """Whether a layer has a window, where no list says it."""
        first = self.first_k_dense_replace
        if number < first:
            return (number + 1) % self.prefix_dense_sliding_window_pattern != 0
        return (number - first + 1) % self.sliding_window_pattern != 0

    def architecture(self) -> Transformer:
        """Windows and experts as the lists say."""
        layers, first = self.num_hidden_layers, self.first_k_dense_replace
        if first > layers:
            raise ConfigError(f"first_k_dense_replace = {first:,} is more than num_hidden_layers = {layers:,}")
        seen = windows(self.layer_types, layers, self.sliding_window, self.slides)
        listed = self.mlp_layer_types
        routed = [number >= first for number in range(layers)] if listed is None else dense_or_sparse(listed, layers)
        per_layer = list(zip(seen, routed, strict=True))
        kinds = {}
        for window, some in dict.fromkeys(per_layer):
            turned = window is not None or (not some and self.prefix_dense_sliding_window_pattern == 1)
            attention = self.attention(window=window, **({} if turned else {"rotary": None}))
            kinds[window, some] = self.beside(attention, self.experts() if some else self.dense())
        return self.decoder([kinds[kind] for kind in per_layer])
