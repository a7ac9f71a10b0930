"""Shared by the families with gated DeltaNet: which layers have it, and what their classes call its modules."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, DeltaNet, Experts, FeedForward, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import share
from tfacct.families._layers import FULL, kinds_of_layers
from tfacct.families._llama_like import LlamaLike
from tfacct.families._mixing import convolved_more
from tfacct.ledger.lines import CHUNK
from tfacct.ledger.workload import Workload

LINEAR = "linear_attention"
CHUNKED = "key_pairs chunk_scores held state_read chunk_values state_write"
"""Products of a chunk: the class runs them in its own module."""

OF_CHANNELS = "new_values new_keys held state_read chunk_values state_write"
"""The same where each channel has a decay of its own."""

FORGET_IN_FILES = (r"\.self_attn\.(f_a_proj|f_b_proj|f_proj|dt_bias|A_log)", r".self_attn.forget_gate.\1")
"""How files spell what makes the decays of channels: not in a module of its own."""


def delta_paths(module: str, fused: str = CHUNKED, **own: str) -> Mapping[str, str]:
    """Our modules of DeltaNet → the class's, in its `module`; `own` are those that have a name there."""
    at, theirs = "blocks.*.delta", f"model.layers.*.{module}"
    return {
        "blocks.*.delta_norm": "model.layers.*.input_layernorm",
        f"{at}.conv": theirs,
        **{f"{at}.{name}": theirs for name in fused.split()},
        **{f"{at}.{name}": f"{theirs}.{path}" for name, path in own.items()},
    }


def delta_tensors(module: str, decay: str = "") -> Mapping[str, str]:
    """Tensors of DeltaNet that are no module's weight in the class."""
    at, theirs = "blocks.*.delta", f"model.layers.*.{module}"
    return {
        f"{at}.conv.weight": f"{theirs}.conv1d.weight",
        f"{at}.decay.weight": f"{theirs}.{decay}A_log",
        f"{at}.decay.bias": f"{theirs}.{decay}dt_bias",
    }


KDA_PATHS = delta_paths(
    "self_attn",
    OF_CHANNELS,
    **{name: name for name in ("q_proj", "k_proj", "v_proj")},
    gate_a_proj="g_a_proj",
    gate_b_proj="g_b_proj",
    rate_proj="b_proj",
    decay_a_proj="forget_gate.f_a_proj",
    decay_b_proj="forget_gate.f_b_proj",
    out_norm="o_norm",
    out_proj="o_proj",
)
"""Kimi's delta attention, as its class and GLM-5.3's have it."""
KDA_TENSORS = delta_tensors("self_attn", "forget_gate.")


class DeltaLike(LlamaLike):
    """Llama's fields, and layers of two kinds."""

    fixed: ClassVar = frozenset({CHUNK, "Qc"})
    class_extra: ClassVar = "it convolves more positions than there are new tokens, and drops what it padded"

    def layer_kinds(self, given: list[str] | None, full: list[bool]) -> list[str]:
        """The kind of each layer: as a list says, or full where `full` says so."""
        if given is not None:
            return kinds_of_layers(given, self.num_hidden_layers, (FULL, LINEAR))
        return [FULL if attends else LINEAR for attends in full]

    def deltas(self, heads: int, per_value: int, **own: Any) -> DeltaNet:
        """DeltaNet with so many value heads, which share key heads."""
        names = ("linear_num_value_heads", "linear_num_key_heads")
        group = share(heads, per_value, " by ".join(names))
        return DeltaNet(hidden=self.hidden_size, key_heads=per_value, group=group, activation=self.hidden_act, **own)

    def delta(self) -> DeltaNet:
        """DeltaNet of the layers that have it."""
        raise NotImplementedError

    def attending(self) -> Attention | LatentAttention:
        """Attention of the others."""
        return self.attention()

    def of_two_kinds(self, kinds: list[str], networks: list[FeedForward | Experts]) -> Transformer:
        """DeltaNet or attention in front of each layer's network."""
        per_layer = list(zip(kinds, networks, strict=True))
        parts = {kind: self.delta() if kind == LINEAR else self.attending() for kind in dict.fromkeys(kinds)}
        made = {
            (kind, network): Block.of(parts[kind], network, norm=self.norm())
            for kind, network in dict.fromkeys(per_layer)
        }
        return self.decoder([made[layer] for layer in per_layer])

    @property
    def kernel(self) -> int:
        """Tokens that the convolution sees."""
        raise NotImplementedError

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return {"blocks.*.delta.conv": convolved_more(self.kernel, work.tokens, work.context)}

    def class_cannot(self) -> str | None:
        """It needs a layer with attention, whose cache tells it how many tokens came before."""
        return None if self.transformer().attentions else "it does not run without a layer that has attention"
