"""DBRX: experts in every layer, bounded queries, keys and values, LayerNorms without shift."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, stacks
from tfacct.architecture.parts import Attention, Embedding, Experts, Head, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import (
    Count,
    FamilyConfig,
    Fields,
    Layers,
    Real,
    Switch,
    even,
    rotary,
    share,
    shown,
    validate,
)
from tfacct.families._endings import DECODER
from tfacct.families._experts import check_active
from tfacct.families._fields import is_harmless

RELEASED = "2024-03"

INNER: Mapping[str, Mapping[str, Any]] = {
    "attn_config": {"kv_n_heads": 1, "clip_qkv": None, "rope_theta": None},
    "ffn_config": {"ffn_hidden_size": 3584, "moe_num_experts": 4, "moe_top_k": 1, "ffn_act_fn": None},
}
"""Fields of both inner configs that are read here, and the class's defaults."""
SILENT = frozenset(
    """
    attn_pdrop moe_jitter_eps moe_loss_weight moe_normalize_expert_weights uniform_expert_assignment hidden_size
    model_type id2label
    """.split()
)
"""Fields of them that change no count."""
EXPERTS = "transformer.blocks.*.ffn.experts.mlp"
ATTN = "transformer.blocks.*.norm_attn_norm"


class Config(FamilyConfig):
    """`DbrxConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 32000
    d_model: Count = 2048
    n_layers: Layers = 24
    n_heads: Count = 16
    max_seq_len: Count = 2048
    attn_config: Fields | None = None
    ffn_config: Fields | None = None
    num_key_value_heads: Count | None = None
    tie_word_embeddings: Switch = False
    rope_theta: Real | None = None
    rope_scaling: Fields | None = None
    rope_parameters: Fields | None = None

    stems: ClassVar = ("Dbrx",)
    uncounted: ClassVar = frozenset({"rope_theta", "rope_scaling", "rope_parameters", "num_key_value_heads"})
    aliases: ClassVar = {
        "hidden_size": "d_model",
        "num_hidden_layers": "n_layers",
        "num_attention_heads": "n_heads",
        "max_position_embeddings": "max_seq_len",
    }
    heads: ClassVar = DECODER
    body: ClassVar = "transformer."
    inputs_first: ClassVar = ("blocks.*.mlp.experts.down_proj",)
    hf_paths: ClassVar = {
        "embed": "transformer.wte",
        "blocks.*.attn_norm": f"{ATTN}.norm_1",
        **{f"blocks.*.attn.{name}_proj": f"{ATTN}.attn.Wqkv" for name in "qkv"},
        "blocks.*.attn.scores": f"{ATTN}.attn",
        "blocks.*.attn.values": f"{ATTN}.attn",
        "blocks.*.attn.o_proj": f"{ATTN}.attn.out_proj",
        "blocks.*.mlp_norm": f"{ATTN}.norm_2",
        "blocks.*.mlp.router": "transformer.blocks.*.ffn.router.layer",
        **{f"blocks.*.mlp.experts.{name}_proj": EXPERTS for name in ("gate", "up", "down")},
        "final_norm": "transformer.norm_f",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar = {
        "blocks.*.mlp.experts.gate_proj.weight": f"{EXPERTS}.w1",
        "blocks.*.mlp.experts.up_proj.weight": f"{EXPERTS}.v1",
        "blocks.*.mlp.experts.down_proj.weight": f"{EXPERTS}.w2",
    }

    @property
    def context(self) -> int:
        """max_seq_len."""
        return self.max_seq_len

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> "tuple[FamilyConfig, dict[str, Any], list[str]]":
        """The checked fields, with those of the inner configs that were defaulted."""
        config, defaulted, unknown = validate(cls, raw)
        for field, known in INNER.items():
            given = getattr(config, field) or {}
            sizes = {name: size for name, size in known.items() if size is not None and name not in given}
            defaulted |= {f"{field}.{name}": size for name, size in sizes.items()}
        return config, defaulted, unknown

    def class_cannot(self) -> str | None:
        """It asks for two fields of attn_config that have no default."""
        given = self.attn_config or {}
        missing = [name for name in ("clip_qkv", "rope_theta") if given.get(name) is None]
        return f"it reads attn_config.{missing[0]}, which this config has not" if missing else None

    def inside_of(self, field: str) -> dict[str, Any]:
        """Values of an inner config. Raises ConfigError for a field that is not understood, or a size that is none."""
        known, given = INNER[field], getattr(self, field) or {}
        for name, value in given.items():
            if name not in known and name not in SILENT and not is_harmless(name) and value not in (None, False, 0):
                raise self.refused(f"{field}.{name}", value)
        found = {**known, **{name: value for name, value in given.items() if name in known}}
        for name, default in known.items():
            size = found[name]
            if isinstance(default, int) and (isinstance(size, bool) or not isinstance(size, int) or size < 1):
                raise ConfigError(f"{field}.{name} must be a whole number from 1, not {shown(size)}")
            number = isinstance(size, (int, float)) and not isinstance(size, bool) and size > 0
            if name in ("clip_qkv", "rope_theta") and size is not None and not number:
                raise ConfigError(f"{field}.{name} must be a number above 0, not {shown(size)}")
        return found

    def architecture(self) -> Transformer:
        """Equal pre-norm blocks. Raises ConfigError."""
        if self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", True)
        own, network = self.inside_of("attn_config"), self.inside_of("ffn_config")
        if self.num_key_value_heads not in (None, own["kv_n_heads"]):  # which the class writes beside it
            raise self.refused("num_key_value_heads", self.num_key_value_heads)
        check_active(network["moe_top_k"], network["moe_num_experts"], ("moe_top_k", "moe_num_experts"))
        act = network["ffn_act_fn"] or {}
        if not isinstance(act, Mapping):
            raise ConfigError(f"ffn_config.ffn_act_fn must be an object of fields, not {shown(act)}")
        hidden = self.d_model
        attention = Attention(
            hidden=hidden,
            kv_heads=own["kv_n_heads"],
            group=share(self.n_heads, own["kv_n_heads"], "n_heads by attn_config.kv_n_heads"),
            head_dim=even(share(hidden, self.n_heads, "d_model by n_heads"), "d_model / n_heads ="),
            clip=own["clip_qkv"],
            rotary=rotary(self.rope_theta, self.rope_scaling, self.rope_parameters),
        )
        experts = Experts(
            hidden=hidden,
            experts=network["moe_num_experts"],
            active=network["moe_top_k"],
            width=network["ffn_hidden_size"],
            activation=act.get("name", "silu"),
        )
        norm = Norm(hidden=hidden, kind="layer", learned="scale")
        return Transformer(
            embed=Embedding(vocab=self.vocab_size, hidden=hidden),
            stacks=stacks([Block.of(attention, experts, norm=norm)] * self.n_layers),
            final_norm=norm,
            head=Head(hidden=hidden, vocab=self.vocab_size),
        )
