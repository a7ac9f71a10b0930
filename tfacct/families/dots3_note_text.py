"""dots3-note's language model: latent attention whose turned part is normed and whose heads are gated, with an indexer
in some layers and a window and sizes of their own in the others."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar

from pydantic_core import core_schema

from tfacct.architecture.parts import LatentAttention, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Checked, Count, Fields, Layers, Real, Switch, UpTo, even, shown, whole
from tfacct.families._experts import beside_shared, dense_or_sparse
from tfacct.families._indexed import INDEXED, Indexed
from tfacct.families._layers import FULL, SLIDING, kinds_of_layers, one_each

RELEASED = "2026-09"

CHOOSING = INDEXED[0]
KINDS = (CHOOSING, SLIDING, FULL)
OF_KIND = (
    "num_attention_heads",
    "num_key_value_heads",
    "q_lora_rank",
    "kv_lora_rank",
    "head_dim",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
)
"""Sizes that windowed layers have of their own: `swa_…`, or in per_layer_config."""
Frequency = Annotated[
    int | list[int],
    Checked(
        core_schema.union_schema(
            [whole(1).schema, core_schema.list_schema(core_schema.int_schema(strict=True, ge=0, le=1), strict=True)],
            custom_error_type="frequency",
            custom_error_message="must be a whole number from 1, or a list of 0 and 1",
        )
    ),
]


class Config(Indexed):
    """`Dots3NoteTextConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 152064
    hidden_size: Count = 5120
    intermediate_size: Count = 13824
    num_hidden_layers: Layers = 46
    num_attention_heads: Count = 128
    num_key_value_heads: Count = 128
    max_position_embeddings: Count = 524288
    rms_norm_eps: Real = 1e-5
    q_lora_rank: Count = 1024
    moe_intermediate_size: Count = 1536
    shared_experts_intermediate_size: Count = 1536
    n_shared_experts: Count = 1
    first_k_dense_replace: UpTo = 1
    moe_layer_freq: Frequency = 1  # type: ignore[assignment]
    index_n_heads: Count = 64
    sliding_window: Count | None = None
    use_dsa: Switch | None = None
    use_sliding_window: Switch = True
    per_layer_config: Fields | None = None
    swa_num_attention_heads: Count = 64
    swa_num_key_value_heads: Count = 64
    swa_q_lora_rank: Count = 1024
    swa_kv_lora_rank: Count = 1024
    swa_head_dim: Count = 256
    swa_qk_nope_head_dim: Count = 192
    swa_qk_rope_head_dim: Count | None = None
    swa_v_head_dim: Count = 128
    swa_rope_theta: Real | None = 50_000.0

    stems: ClassVar = ("Dots3Note", "Dots3NoteText")
    uncounted: ClassVar = (Indexed.uncounted - {"layer_types", "moe_layer_freq"}) | {
        "swa_num_key_value_heads",
        "swa_rope_theta",
    }
    aliases: ClassVar = {
        **Indexed.aliases,
        "moe_shared_expert_intermediate_size": "shared_experts_intermediate_size",
        "sliding_window_size": "sliding_window",
    }
    kept_wide: ClassVar[tuple[str, ...]] = ()
    understood: ClassVar[Mapping[str, object]] = {"mlp_bias": False}
    hf_paths: ClassVar = {
        **Indexed.hf_paths,
        "blocks.*.attn.turned_norm": "model.layers.*.self_attn.k_rope_only_layernorm",
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.g_proj",
    }

    @property
    def window(self) -> int:
        """Number of keys that a token of a windowed layer sees."""
        return self.sliding_window or 512

    def kinds(self) -> list[str]:
        """Kind of each layer. Raises ConfigError."""
        chooses = self.per_layer_config is None if self.use_dsa is None else self.use_dsa
        own = CHOOSING if chooses or self.use_dsa is None else FULL
        layers = self.num_hidden_layers
        if self.layer_types is None:
            slides = self.use_sliding_window
            return [own if not slides or number < 2 or number % 4 == 1 else SLIDING for number in range(layers)]
        kinds = kinds_of_layers(self.layer_types, layers, KINDS)
        if self.use_dsa is None and not chooses:
            return kinds
        return [kind if kind == SLIDING else own for kind in kinds]

    def routed(self) -> list[bool]:
        """Booleans, one for each layer: whether it has experts. Raises ConfigError."""
        layers, first, every = self.num_hidden_layers, self.first_k_dense_replace, self.moe_layer_freq
        if self.mlp_layer_types is not None:
            return dense_or_sparse(self.mlp_layer_types, layers)
        if isinstance(every, int):
            return [number >= first and number % every == 0 for number in range(layers)]
        one_each("moe_layer_freq", every, layers)
        return [number >= first and bool(every[number]) for number in range(layers)]

    def sizes_in_windows(self, slides: list[int]) -> dict[str, int]:
        """Sizes of the layers with these numbers, which have a window. Raises ConfigError."""
        if self.per_layer_config is None:
            sizes = {name: getattr(self, f"swa_{name}") for name in OF_KIND}
            if sizes["qk_rope_head_dim"] is None:
                sizes["qk_rope_head_dim"] = sizes["head_dim"] - sizes["qk_nope_head_dim"]
            return sizes
        said = {int(text) if text.isdigit() else -1: fields for text, fields in self.per_layer_config.items()}
        each = list(said.values())
        alike = all(isinstance(fields, Mapping) and fields == each[0] for fields in each)
        if sorted(said) != slides or not alike:
            raise self.refused("per_layer_config", self.per_layer_config)
        own = each[0] if each else {}
        for name, value in own.items():
            if name not in OF_KIND:
                raise self.refused(f"per_layer_config.{name}", value)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ConfigError(f"per_layer_config.{name} must be a whole number, not {shown(value)}")
        return {**{name: getattr(self, name) for name in OF_KIND}, "head_dim": self.head_dim or 256, **own}

    def turning(self, kind: str) -> Rotary:
        """Angles of a kind of layer. Raises ConfigError."""
        spelled = self.rope_parameters or self.rope_scaling or {}
        spelled = spelled.get(kind, spelled)
        if not isinstance(spelled, Mapping):
            raise ConfigError(f"rope_parameters.{kind} must be an object of fields, not {shown(spelled)}")
        base = self.swa_rope_theta if kind == SLIDING else self.rope_theta or 80_000_000.0
        scaling = {name: value for name, value in spelled.items() if name != "partial_rotary_factor"}
        return Rotary(spelled.get("rope_theta") or base or 50_000.0, scaling or None, "neighbours")

    def attention_of(self, kind: str, sizes: Mapping[str, int]) -> LatentAttention:
        """Attention of a kind of layer; `sizes` are those of windowed ones. Raises ConfigError."""
        own: dict[str, Any] = {"stretched": True, "stretches": "latents", "turned_norm": True, "gated": True}
        own |= {"eps": self.rms_norm_eps, "scale": None, "rotary": self.turning(kind)}
        if kind != SLIDING:
            plain = self.choosing(index_pairs="neighbours") if kind == CHOOSING else self.latent()
            return replace(plain, **own)
        if sizes["num_key_value_heads"] != sizes["num_attention_heads"]:
            raise ConfigError("a latent gives every head keys of its own, in windowed layers too")
        if sizes["qk_rope_head_dim"] < 1 or sizes["head_dim"] != sizes["qk_nope_head_dim"] + sizes["qk_rope_head_dim"]:
            raise ConfigError(
                f"head_dim = {sizes['head_dim']:,} of windowed layers is not the sum of qk_nope_head_dim ="
                f" {sizes['qk_nope_head_dim']:,} and qk_rope_head_dim = {sizes['qk_rope_head_dim']:,}"
            )
        return replace(
            self.latent(),
            heads=sizes["num_attention_heads"],
            q_rank=sizes["q_lora_rank"],
            kv_rank=sizes["kv_lora_rank"],
            nope_dim=sizes["qk_nope_head_dim"],
            rope_dim=even(sizes["qk_rope_head_dim"], "qk_rope_head_dim of windowed layers"),
            value_dim=sizes["v_head_dim"],
            window=self.window,
            **own,
        )

    def refuse(self) -> None:
        """Refuse what the class does not have. Raises ConfigError."""
        for name, only in self.understood.items():
            if getattr(self, name) != only:
                raise self.refused(name, getattr(self, name))
        if self.index_head_dim < self.qk_rope_head_dim:
            raise ConfigError(
                f"index_head_dim = {self.index_head_dim:,} must be at least"
                f" qk_rope_head_dim = {self.qk_rope_head_dim:,}, the part of it that is rotated"
            )
        even(self.qk_rope_head_dim, "qk_rope_head_dim")

    def architecture(self) -> Transformer:
        """Layers with an indexer, a window, or neither; dense, or with experts."""
        self.refuse()
        kinds = self.kinds()
        sizes = self.sizes_in_windows([number for number, kind in enumerate(kinds) if kind == SLIDING])
        made = {kind: self.attention_of(kind, sizes) for kind in dict.fromkeys(kinds)}
        shared = self.n_shared_experts * self.shared_experts_intermediate_size
        experts = replace(beside_shared(self, self.n_routed_experts, 0), shared=shared)
        dense, per_layer = self.feed_forward(), list(zip(kinds, self.routed(), strict=True))
        blocks = {(kind, some): self.block(made[kind], experts if some else dense) for kind, some in set(per_layer)}
        return self.decoder([blocks[each] for each in per_layer])
