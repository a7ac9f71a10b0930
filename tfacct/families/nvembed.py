"""NV-Embed: Mistral's blocks as an encoder, and a pooler whose positions read learned rows."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.parts import LatentReader
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Word, shown
from tfacct.families._endings import BODY, Ending
from tfacct.families._llama_like import LlamaLike

RELEASED = "2024-05"

TEXT, LATENT = "text_config", "latent_attention_config"
TYPES = {TEXT: "bidir_mistral", LATENT: "latent_attention"}
WIDER = 4
"""How many times as wide as the model the pooler's network is."""


class Config(LlamaLike):
    """`NVEmbedConfig` of its own code, whose defaults are Mistral's; the fields of both configs in it together."""

    vocab_size: Count = 32000
    hidden_size: Count = 4096
    intermediate_size: Count = 14336
    num_hidden_layers: Layers = 32
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    max_position_embeddings: Count = 131072
    num_latents_value: Count = 512
    num_cross_heads: Count = 8
    cross_dim_head: Count = 4096
    latent_dim: Count = 4096
    hidden_dim: Count = 4096
    mask_type: Word = "b"
    rms_norm_eps: Real = 1e-6

    stems: ClassVar = ("NVEmbed",)
    heads: ClassVar[Mapping[str, Ending]] = {"Model": Ending("", BODY.head, pooler=True)}
    hf_paths: ClassVar = {}
    uncounted: ClassVar = LlamaLike.uncounted | {"mask_type", "latent_dim", "hidden_dim"}
    harmless: ClassVar = frozenset(
        """
        add_eos add_pad_token is_mask_instruction padding_side output_normalize tie_word_embeddings sliding_window
        attention_dropout added_tokens_decoder latent_attention
        """.split()
    )

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields of both configs in the whole, defaults and unknown names. Raises ConfigError."""
        whole = {name: value for name, value in raw.items() if name not in TYPES}
        for name, expected in TYPES.items():
            inside = raw.get(name) or {}
            if not isinstance(inside, Mapping):
                raise ConfigError(f"{name} must be an object of fields, not {shown(inside)}")
            if inside.get("model_type", expected) != expected:
                raise ConfigError(f"{name} of nvembed is of model_type {shown(inside['model_type'])}, not {expected}")
            whole = {**{field: value for field, value in inside.items() if field != "architectures"}, **whole}
        return super().read(whole)

    def pooler(self, hidden: Any) -> LatentReader:
        """The one that reads learned rows."""
        rows, heads, size = self.num_latents_value, self.num_cross_heads, self.cross_dim_head
        return LatentReader(hidden=hidden, rows=rows, heads=heads, head_dim=size, width=WIDER * self.latent_dim)

    def architecture(self) -> Transformer:
        """Equal blocks that are not causal, and a norm. Raises ConfigError."""
        for name in ("latent_dim", "hidden_dim"):
            if getattr(self, name) != self.hidden_size:
                raise self.refused(name, getattr(self, name))
        if self.mask_type != "b":
            raise self.refused("mask_type", self.mask_type)
        return self.decoder(self.equal_blocks(self.block(self.attention(causal=False), self.feed_forward())), head=None)
