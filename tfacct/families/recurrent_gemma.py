"""RecurrentGemma (Griffin): two layers with a gated linear recurrence, then one with attention in a window."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, FeedForward, GatedRecurrence, Head
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fraction, Layers, Real, Switch, Word, even, share, turned_part
from tfacct.families._endings import BODY, CAUSAL_MODEL
from tfacct.families._gemma_like import GemmaLike
from tfacct.families._layers import LayerTypes
from tfacct.families._llama_like import LlamaLike, head_dim_from
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.workload import Workload

RELEASED = "2024-04"

LRU, ATTENDS = "recurrent", "attention"
TEMPORAL = "model.layers.*.temporal_block"
TRAINED = 8192
NETWORK = ("gate_proj", "up_proj", "down_proj")


def _all_heads(fields: dict[str, Any]) -> Any:
    """As many as query heads, where num_key_value_heads is absent or null."""
    return fields["num_attention_heads"]


class Config(GemmaLike):
    """`RecurrentGemmaConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 256000
    hidden_size: Count = 2560
    num_hidden_layers: Layers = 26
    num_attention_heads: Count = 10
    intermediate_size: Count = 7680
    num_key_value_heads: Count = Field(default_factory=_all_heads)
    head_dim: Count = Field(default_factory=head_dim_from)
    max_position_embeddings: Count = TRAINED
    hidden_activation: Word = "gelu_pytorch_tanh"
    partial_rotary_factor: Fraction = 0.5
    logits_soft_cap: Real = 30.0
    lru_width: Count = Field(default_factory=lambda fields: fields["hidden_size"])
    conv1d_width: Count = 4
    attention_window_size: Count = 2048
    block_types: LayerTypes = Field(default_factory=lambda _: [LRU, LRU, ATTENDS])
    attention_bias: Switch = False

    stems: ClassVar = ("RecurrentGemma",)
    aliases: ClassVar = {"_block_types": "block_types", "sliding_window": "attention_window_size"}
    uncounted: ClassVar = LlamaLike.uncounted | {
        "hidden_activation",
        "partial_rotary_factor",
        "logits_soft_cap",
        "max_position_embeddings",
    }
    harmless: ClassVar = frozenset(
        {"w_init_variance_scale", "final_w_init_variance_scale", "embeddings_scale_by_sqrt_dim"}
    )
    heads: ClassVar = {
        "ForCausalLM": replace(CAUSAL_MODEL, gives=False),
        "Model": replace(BODY, gives=False),
    }
    hf_paths: ClassVar = {
        "embed": "model.embed_tokens",
        **{f"blocks.*.{part}_norm": "model.layers.*.temporal_pre_norm" for part in ("attn", "lru")},
        **{f"blocks.*.attn.{name}_proj": f"{TEMPORAL}.{name}_proj" for name in "qkvo"},
        "blocks.*.attn.scores": TEMPORAL,
        "blocks.*.attn.values": TEMPORAL,
        "blocks.*.lru.y_proj": f"{TEMPORAL}.linear_y",
        "blocks.*.lru.x_proj": f"{TEMPORAL}.linear_x",
        "blocks.*.lru.conv": f"{TEMPORAL}.conv_1d",
        "blocks.*.lru.input_gate": f"{TEMPORAL}.rg_lru",
        "blocks.*.lru.decay_gate": f"{TEMPORAL}.rg_lru",
        "blocks.*.lru.out_proj": f"{TEMPORAL}.linear_out",
        "blocks.*.mlp_norm": "model.layers.*.channel_pre_norm",
        **{f"blocks.*.mlp.{name}": f"model.layers.*.mlp_block.{name}" for name in NETWORK},
        "final_norm": "model.final_norm",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar = {
        "blocks.*.lru.input_gate.weight": f"{TEMPORAL}.rg_lru.input_gate_weight",
        "blocks.*.lru.input_gate.bias": f"{TEMPORAL}.rg_lru.input_gate_bias",
        "blocks.*.lru.decay_gate.weight": f"{TEMPORAL}.rg_lru.recurrent_gate_weight",
        "blocks.*.lru.decay_gate.bias": f"{TEMPORAL}.rg_lru.recurrent_gate_bias",
        "blocks.*.lru.decay.weight": f"{TEMPORAL}.rg_lru.recurrent_param",
    }
    class_extra: ClassVar = (
        "it convolves more positions than there are new tokens, and drops what it padded; in a decode step its "
        "convolution is a sum and no product"
    )

    @property
    def context(self) -> int:
        """8,192: what the published models were trained with, unless the config says otherwise."""
        return self.max_position_embeddings

    @property
    def activation(self) -> str:
        """hidden_activation."""
        return self.hidden_activation

    def kinds(self) -> list[str]:
        """What each layer has in front of its network. Raises ConfigError."""
        listed = self.block_types
        for number, kind in enumerate(listed):
            if kind not in (LRU, ATTENDS):
                raise ConfigError(f"block_types[{number}] = {kind!r} is not understood: write {LRU} or {ATTENDS}")
        if not listed:
            raise ConfigError("block_types names no kind of layer")
        return [listed[number % len(listed)] for number in range(self.num_hidden_layers)]

    def mixer(self) -> GatedRecurrence:
        """The mixer of a layer without attention. Raises ConfigError."""
        if self.conv1d_width < 2:
            raise self.refused("conv1d_width", self.conv1d_width)
        return GatedRecurrence(
            hidden=self.hidden_size,
            blocks=self.num_attention_heads,
            block_dim=share(self.lru_width, self.num_attention_heads, "lru_width by num_attention_heads"),
            before=self.conv1d_width - 1,
            activation=self.activation,
        )

    def architecture(self) -> Transformer:
        """One network in all layers."""
        network = FeedForward(
            hidden=self.hidden_size,
            width=share(self.intermediate_size, 2, "intermediate_size by 2"),
            gated=True,
            bias=True,
            activation=self.activation,
        )
        kinds = self.kinds()
        made: dict[str, Attention | GatedRecurrence] = {}
        if ATTENDS in kinds:
            part = turned_part(self.partial_rotary_factor, self.rope_parameters)
            turned = even(int(self.head_dim * part), "partial_rotary_factor · head_dim =")
            made[ATTENDS] = self.attention(rope_dim=turned, window=self.attention_window_size, out_bias=True)
        if LRU in kinds:
            made[LRU] = self.mixer()
        blocks = {kind: Block.of(part, network, norm=self.norm()) for kind, part in made.items()}
        return self.decoder([blocks[kind] for kind in kinds])

    def decoder(self, blocks: Sequence[Block], **own: Any) -> Transformer:
        """Bounded logits."""
        head = Head(
            hidden=self.hidden_size,
            vocab=self.vocab_size,
            tied=self.tie_word_embeddings,
            softcap=self.logits_soft_cap,
        )
        return GemmaLike.decoder(self, blocks, **{"head": head, **own})

    def class_cannot(self) -> str | None:
        """It needs a layer with attention, whose cache tells it how many tokens came before."""
        return None if ATTENDS in self.kinds() else "it does not run without a layer that has attention"

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """Both ends of what it convolves are padded; the token of a decode step is multiplied and summed."""
        return {} if work.tokens == 1 else {"blocks.*.lru.conv": self.conv1d_width - 1}

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """One new token's convolution is no product in the class."""
        if work.tokens > 1 or LRU not in self.kinds():
            return {}
        return {"blocks.*.lru.conv": -FLOPS_PER_MULTIPLY_ADD * work.batch * self.lru_width * self.conv1d_width}
