"""Kimi Linear: DeltaNet with a decay for every channel (KDA) in most layers, latent attention without rotation in the
others; dense layers first, then experts beside a shared network."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from tfacct.architecture.parts import DeltaNet, Experts, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Layers, Real, Switch, UpTo, shown
from tfacct.families._delta_like import FORGET_IN_FILES, KDA_PATHS, KDA_TENSORS, LINEAR, DeltaLike
from tfacct.families._endings import DECODER
from tfacct.families._experts import ROUTED_PATHS, ROUTED_TENSORS, check_active
from tfacct.families._latent_like import LatentLike
from tfacct.families._layers import FULL, LayerTypes, kinds_of_layers
from tfacct.ledger.workload import Workload

RELEASED = "2025-10"

DENSE, SPARSE = "dense", "sparse"
PUBLISHED = {"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"}
PUBLISHED |= {"short_conv_kernel_size": "linear_conv_kernel_dim"}
"""Fields of linear_attn_config, and those of the class."""


class Config(LatentLike, DeltaLike):
    """`KimiLinearConfig`, with its class's defaults, sizes too. linear_attn_config, where it is there, says the sizes
    and the layers of DeltaNet."""

    vocab_size: Count = 163840
    hidden_size: Count = 2304
    intermediate_size: Count = 9216
    num_hidden_layers: Layers = 27
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 32
    max_position_embeddings: Count = 1048576
    rms_norm_eps: Real = 1e-5
    q_lora_rank: Count | None = None
    moe_intermediate_size: Count = 1024
    num_local_experts: Count = 256
    n_shared_experts: Count = 1
    num_experts_per_tok: Count = 8
    first_k_dense_replace: UpTo = 1
    mlp_layer_types: LayerTypes | None = None
    layer_types: LayerTypes | None = None
    linear_head_dim: Count = 128
    linear_num_heads: Count = 32
    linear_conv_kernel_dim: Count = 4
    linear_attn_config: Fields | None = None
    mla_use_nope: Switch = True
    moe_layer_freq: Count = 1

    uncounted: ClassVar = LatentLike.uncounted | {"mla_use_nope", "moe_layer_freq"}
    fixed: ClassVar = DeltaLike.fixed | {"Gd"}
    stems: ClassVar = ("KimiLinear",)
    in_files: ClassVar = (FORGET_IN_FILES,)
    heads: ClassVar = DECODER
    aliases: ClassVar[Mapping[str, str]] = {
        "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
        "model_max_length": "max_position_embeddings",
    }
    harmless: ClassVar = LatentLike.harmless | frozenset(
        """
        moe_renormalize moe_router_activation_func num_expert_group n_group topk_group use_grouped_topk
        routed_scaling_factor
        """.split()
    )
    hf_paths: ClassVar = {
        **LatentLike.hf_paths,
        **ROUTED_PATHS,
        **{
            f"blocks.*.mlp.shared.{name}": f"model.layers.*.mlp.shared_experts.{name}"
            for name in ("gate_proj", "up_proj", "down_proj")
        },
        **KDA_PATHS,
    }
    hf_tensors: ClassVar = {**ROUTED_TENSORS, **KDA_TENSORS}

    @property
    def kernel(self) -> int:
        """Tokens that the convolution sees."""
        return self.of_delta("linear_conv_kernel_dim")

    def of_delta(self, field: str) -> int:
        """A size of DeltaNet, as linear_attn_config says it, or else the field. Raises ConfigError."""
        inside = next(name for name, own in PUBLISHED.items() if own == field)
        said = (self.linear_attn_config or {}).get(inside, getattr(self, field))
        if not isinstance(said, int) or isinstance(said, bool) or said < 1:
            raise ConfigError(f"linear_attn_config.{inside} must be a whole number from 1, not {shown(said)}")
        return said

    def kinds(self) -> list[str]:
        """The kind of each layer. Raises ConfigError."""
        layers, said = self.num_hidden_layers, self.linear_attn_config or {}
        for name in said:
            if name not in (*PUBLISHED, "full_attn_layers", "kda_layers"):
                raise self.refused(f"linear_attn_config.{name}", said[name])
        if self.layer_types is not None or not {"full_attn_layers", "kda_layers"} <= said.keys():
            return self.layer_kinds(self.layer_types, [n > 0 and n % 4 == 0 for n in range(layers)])
        found: dict[int, str] = {}
        for name, kind in (("full_attn_layers", FULL), ("kda_layers", LINEAR)):
            for number in _numbers(name, said[name], layers):
                found[number] = kind  # the class takes the last word
        if len(found) < layers:
            missing = next(number for number in range(1, layers + 1) if number not in found)
            raise ConfigError(f"linear_attn_config names layer {missing} neither in full_attn_layers nor in kda_layers")
        return [found[number] for number in range(1, layers + 1)]

    def delta(self) -> DeltaNet:
        """DeltaNet with a decay for each channel of a key."""
        size = self.of_delta("linear_head_dim")
        return self.deltas(
            self.of_delta("linear_num_heads"),
            self.of_delta("linear_num_heads"),
            key_dim=size,
            value_dim=size,
            rank=size,
            kernel=self.kernel,
            gate="sigmoid",
            eps=self.rms_norm_eps,
        )

    def attending(self) -> LatentAttention:
        """Latent attention that is not rotated."""
        return replace(self.latent(), rotary=None)

    def architecture(self) -> Transformer:
        """Dense layers and layers of experts, as mlp_layer_types says, or else the first ones dense."""
        check_active(self.num_experts_per_tok, self.num_local_experts, ("num_experts_per_tok", "num_experts"))
        for name, plain in (("mla_use_nope", True), ("moe_layer_freq", 1), ("tie_word_embeddings", False)):
            if getattr(self, name) != plain:  # the class reads none of them
                raise self.refused(name, getattr(self, name))
        experts = Experts(
            hidden=self.hidden_size,
            experts=self.num_local_experts,
            active=self.num_experts_per_tok,
            width=self.moe_intermediate_size,
            shared=self.n_shared_experts * self.moe_intermediate_size,
            activation=self.activation,
        )
        layers, dense = self.num_hidden_layers, self.feed_forward()
        first = [DENSE if number < self.first_k_dense_replace else SPARSE for number in range(layers)]
        given = self.mlp_layer_types or first
        kinds = kinds_of_layers(given, layers, (DENSE, SPARSE), "mlp_layer_types")
        return self.of_two_kinds(self.kinds(), [dense if kind == DENSE else experts for kind in kinds])

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked."""
        return LatentLike.class_cannot(self) or DeltaLike.class_cannot(self)

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return DeltaLike.class_runs_more(self, work)


def _numbers(name: str, given: Any, layers: int) -> list[int]:
    """Layers that a list names, from 1. Raises ConfigError."""
    if isinstance(given, list) and all(type(n) is int and 1 <= n <= layers for n in given):
        return given
    raise ConfigError(f"linear_attn_config.{name} must list layers from 1 to {layers:,}, not {shown(given)}")
