"""Ling 3.0: DeltaNet with a decay for every channel (KDA) in most layers, gated latent attention in every sixth; dense
layers first, then experts beside a shared network."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, ClassVar

from pydantic import Field
from pydantic_core import core_schema

from tfacct.architecture.parts import DeltaNet, LatentAttention
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Checked, Count, Layers, Real, Switch, UpTo
from tfacct.families._delta_like import DeltaLike, delta_paths, delta_tensors
from tfacct.families._endings import DECODER
from tfacct.families._experts import BESIDE_PATHS, ROUTED_TENSORS, LayerNetworks, beside_shared, dense_or_sparse
from tfacct.families._latent_like import LatentLike
from tfacct.families._layers import LayerTypes
from tfacct.ledger.workload import Workload

_OWN_PRODUCTS = "new_values new_keys held state_read chunk_values state_write"
Below = Annotated[float, Checked(core_schema.float_schema(lt=0, allow_inf_nan=False))]


class Config(LatentLike, DeltaLike):
    """`BailingHybridConfig`, with its class's defaults, sizes too."""

    vocab_size: Count = 157184
    hidden_size: Count = 2560
    intermediate_size: Count = 6144
    num_hidden_layers: Layers = 42
    num_attention_heads: Count = 32
    num_key_value_heads: Count = Field(default_factory=lambda fields: fields["num_attention_heads"])
    max_position_embeddings: Count = 262144
    q_lora_rank: Count | None = None
    head_dim: Count = 128  # type: ignore[assignment]
    rope_theta: Real | None = 6_000_000.0
    moe_intermediate_size: Count = 768
    num_local_experts: Count = 512
    n_shared_experts: UpTo = 1
    num_experts_per_tok: Count = 8
    first_k_dense_replace: UpTo = 2
    mlp_layer_types: LayerNetworks | None = None
    layer_types: LayerTypes | None = None
    layer_group_size: Count = 6
    short_conv_kernel_size: Count = 4
    kda_safe_gate: Switch = True
    kda_lower_bound: Below = -5.0
    num_mtp_layers: UpTo = 1

    uncounted: ClassVar = (LatentLike.uncounted - {"head_dim"}) | {
        "kda_lower_bound",
        "kda_safe_gate",
        "num_mtp_layers",
        "q_lora_rank",
    }
    fixed: ClassVar = DeltaLike.fixed | {"Gd"}
    stems: ClassVar = ("BailingHybrid",)
    heads: ClassVar = DECODER
    aliases: ClassVar[Mapping[str, str]] = {
        "num_experts": "num_local_experts",
        "num_experts_per_token": "num_experts_per_tok",
        "num_shared_experts": "n_shared_experts",
        "model_max_length": "max_position_embeddings",
        "num_nextn_predict_layers": "num_mtp_layers",
    }
    harmless: ClassVar = LatentLike.harmless | frozenset(
        "moe_renormalize num_expert_group n_group topk_group routed_scaling_factor mtp_loss_scaling_factor".split()
    )
    hf_paths: ClassVar = {
        **LatentLike.hf_paths,
        **BESIDE_PATHS,
        "blocks.*.attn.gate_proj": "model.layers.*.self_attn.g_proj",
        **delta_paths(
            "self_attn",
            _OWN_PRODUCTS,
            **{name: name for name in ("q_proj", "k_proj", "v_proj")},
            gate_proj="g_proj",
            rate_proj="b_proj",
            decay_proj="forget_gate.f_proj",
            out_norm="o_norm",
            out_proj="o_proj",
        ),
    }
    hf_tensors: ClassVar = {**ROUTED_TENSORS, **delta_tensors("self_attn", "forget_gate.")}
    gotchas: ClassVar[tuple[str, ...]] = (
        "Every layer_group_size-th layer (6th if absent) has latent attention and the others DeltaNet, unless"
        " layer_types says otherwise. Heads of DeltaNet are num_attention_heads of head_dim (128 if absent).",
        "Each channel of a key decays by a number of its own, which one product makes. So the scores inside a chunk are"
        " no product in the class, and pointwise work here; what it multiplies instead is the inverse of each"
        " triangular system.",
        "One number for each head and token gates what latent attention gives. Queries have no latent.",
        *(text for text in LatentLike.gotchas if "q_lora_rank" not in text and "head_dim" not in text),
        *DeltaLike.gotchas,
        "The router's bias is a buffer in the class and not a parameter here. Layers that predict further tokens"
        " (num_mtp_layers) are not counted, as in the class.",
    )

    @property
    def kernel(self) -> int:
        """short_conv_kernel_size."""
        return self.short_conv_kernel_size

    def delta(self) -> DeltaNet:
        """DeltaNet with a decay for each channel of a key."""
        heads, size = self.num_attention_heads, self.head_dim
        return self.deltas(
            heads,
            heads,
            key_dim=size,
            value_dim=size,
            channels_decay=True,
            bound=self.kda_lower_bound if self.kda_safe_gate else None,
            kernel=self.kernel,
            gate="sigmoid",
            eps=self.rms_norm_eps,
        )

    def attending(self) -> LatentAttention:
        """Latent attention with a gate for each head."""
        return replace(self.latent(), gate="heads")

    def architecture(self) -> Transformer:
        """Layers of two kinds, as layer_types and mlp_layer_types say."""
        for name in ("tie_word_embeddings", "q_lora_rank"):  # which the class does not read
            if getattr(self, name):
                raise self.refused(name, getattr(self, name))
        layers, dense = self.num_hidden_layers, self.feed_forward()
        experts = beside_shared(self, self.num_local_experts, self.n_shared_experts)
        kinds = self.layer_kinds(self.layer_types, [(n + 1) % self.layer_group_size == 0 for n in range(layers)])
        first = [number >= self.first_k_dense_replace for number in range(layers)]
        routed = first if self.mlp_layer_types is None else dense_or_sparse(self.mlp_layer_types, layers)
        return self.of_two_kinds(kinds, [experts if some else dense for some in routed])

    def class_cannot(self) -> str | None:
        """Reason why the class cannot be asked."""
        return LatentLike.class_cannot(self) or DeltaLike.class_cannot(self)

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return DeltaLike.class_runs_more(self, work)
