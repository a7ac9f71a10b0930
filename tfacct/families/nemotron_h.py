"""Nemotron-H and Nemotron 3: one operator in each layer, Mamba-2, attention, a network or experts; no positions."""

from collections.abc import Mapping
from typing import Any, ClassVar

from pydantic import Field

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Experts, FeedForward, Mamba2, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Layers, Real, Switch, Word, share, validate
from tfacct.families._endings import DECODER
from tfacct.families._experts import check_active
from tfacct.families._layers import LayerTypes
from tfacct.families._llama_like import LlamaLike
from tfacct.families._mixing import MAMBA2_EXTRA, mamba2_more, mamba2_paths, mamba2_tensors, passed
from tfacct.ledger.workload import Workload

RELEASED = "2025-04"

MAMBA, FULL, MLP, MOE = "linear_attention", "full_attention", "mlp", "moe"
LETTERS = {"M": MAMBA, "*": FULL, "-": MLP, "E": MOE}
"""Kinds of layers in hybrid_override_pattern."""
PROJECTIONS = ("q_proj", "k_proj", "v_proj", "o_proj")
OF_EXPERTS = (
    "n_routed_experts",
    "num_experts_per_tok",
    "moe_intermediate_size",
    "moe_shared_expert_intermediate_size",
    "moe_latent_size",
)
"""Fields that say something of layers of experts only."""
TWO = ("up_proj", "down_proj")
OLDER = {"mamba": MAMBA, "attention": FULL}


class Config(LlamaLike):
    """`NemotronHConfig`, with its class's defaults, sizes too. How many layers there are, their list says."""

    vocab_size: Count = 131072
    hidden_size: Count = 4096
    layers_block_type: LayerTypes | None = None
    hybrid_override_pattern: Word | None = None
    num_hidden_layers: Layers | None = None  # type: ignore[assignment]
    num_attention_heads: Count = 32
    num_key_value_heads: Count = 8
    head_dim: Count = Field(default=128)
    max_position_embeddings: Count = 4096
    intermediate_size: Count = 21504
    mlp_bias: Switch = False
    mlp_hidden_act: Word = "relu2"
    ssm_state_size: Count = 128
    mamba_num_heads: Count = 128
    mamba_head_dim: Count = 64
    mamba_hidden_act: Word = "silu"
    n_groups: Count = 8
    conv_kernel: Count = 4
    use_conv_bias: Switch = True
    chunk_size: Count = 128
    use_bias: Switch = False
    time_step_min: Real = 0.001
    layer_norm_epsilon: Real = 1e-5
    n_routed_experts: Count = 8
    num_experts_per_tok: Count = 2
    moe_intermediate_size: Count = 7688
    moe_shared_expert_intermediate_size: Count = 7688
    moe_latent_size: Count | None = None

    stems: ClassVar = ("NemotronH",)
    in_files: ClassVar = ((r"^backbone\.", "model."),)
    uncounted: ClassVar = LlamaLike.uncounted | {
        "mlp_hidden_act",
        "mamba_hidden_act",
        "time_step_min",
        "layer_norm_epsilon",
        "num_hidden_layers",
    }
    aliases: ClassVar = {
        "layer_types": "layers_block_type",
        "num_local_experts": "n_routed_experts",
        "attention_head_dim": "head_dim",
        "mamba_n_groups": "n_groups",
        "mamba_d_conv": "conv_kernel",
        "mamba_conv_bias": "use_conv_bias",
        "mamba_chunk_size": "chunk_size",
        "mamba_dt_min": "time_step_min",
    }
    harmless: ClassVar = frozenset(
        """
        attention_bias expand mamba_dt_init_floor mamba_dt_limit mamba_dt_max mamba_expand mamba_proj_bias
        mamba_ssm_cache_dtype moe_shared_expert_overlap n_group
        n_shared_experts norm_eps num_logits_to_keep rescale_prenorm_residual residual_in_fp32 routed_scaling_factor
        time_step_floor time_step_limit time_step_max time_step_rank topk_group use_mamba_kernels
        """.split()
    )
    heads: ClassVar = DECODER
    body: ClassVar = "model."
    hf_paths: ClassVar = {
        "embed": "model.embeddings",
        **{f"blocks.*.{part}_norm": "model.layers.*.norm" for part in ("attn", "mamba", "mlp")},
        **{f"blocks.*.attn.{name}": f"model.layers.*.mixer.{name}" for name in PROJECTIONS},
        "blocks.*.attn.scores": "model.layers.*.mixer",
        "blocks.*.attn.values": "model.layers.*.mixer",
        **{f"blocks.*.mlp.{name}": f"model.layers.*.mixer.{name}" for name in TWO},
        "blocks.*.mlp.router": "model.layers.*.mixer.gate",
        **{f"blocks.*.mlp.experts.{name}": "model.layers.*.mixer.experts" for name in TWO},
        **{f"blocks.*.mlp.shared.{name}": f"model.layers.*.mixer.shared_experts.{name}" for name in TWO},
        "blocks.*.mlp.latent_down": "model.layers.*.mixer.fc1_latent_proj",
        "blocks.*.mlp.latent_up": "model.layers.*.mixer.fc2_latent_proj",
        **mamba2_paths("model.layers.*.mixer"),
        "final_norm": "model.norm_f",
        "lm_head": "lm_head",
    }
    hf_tensors: ClassVar[Mapping[str, str]] = {
        **mamba2_tensors("model.layers.*.mixer"),
        **{f"blocks.*.mlp.experts.{name}.weight": f"model.layers.*.mixer.experts.{name}" for name in TWO},
    }
    class_extra: ClassVar = MAMBA2_EXTRA

    def kinds(self) -> list[str]:
        """What each layer is. Raises ConfigError."""
        field = "layers_block_type" if self.layers_block_type is not None else "hybrid_override_pattern"
        listed = self.layers_block_type if self.layers_block_type is not None else self.hybrid_override_pattern
        if listed is None:
            raise ConfigError("layers_block_type or hybrid_override_pattern must name the layers")
        kinds = [LETTERS.get(name, OLDER.get(name, name)) for name in listed]
        for number, kind in enumerate(kinds):
            if kind not in LETTERS.values():
                raise ConfigError(f"{field}[{number}] = {listed[number]!r} is not understood: write one of M * - E")
        if not kinds or self.num_hidden_layers not in (None, len(kinds)):
            raise ConfigError(f"{field} names {len(kinds):,} layers, and num_hidden_layers is {self.num_hidden_layers}")
        return kinds

    def norm(self) -> Norm:
        """RMSNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.layer_norm_epsilon)

    def mixer(self) -> Mamba2:
        """The mixer of a layer with Mamba-2."""
        return Mamba2(
            hidden=self.hidden_size,
            groups=self.n_groups,
            group=share(self.mamba_num_heads, self.n_groups, "mamba_num_heads by n_groups"),
            head_dim=self.mamba_head_dim,
            state=self.ssm_state_size,
            kernel=self.conv_kernel,
            chunk=self.chunk_size,
            bias=self.use_bias,
            conv_bias=self.use_conv_bias,
            activation=self.mamba_hidden_act,
            eps=self.layer_norm_epsilon,
            least_step=self.time_step_min,
        )

    def experts(self) -> Experts:
        """Experts beside a shared network, none of them gated. Raises ConfigError."""
        active, experts = self.num_experts_per_tok, self.n_routed_experts
        check_active(active, experts, ("num_experts_per_tok", "n_routed_experts"))
        return Experts(
            hidden=self.hidden_size,
            experts=experts,
            active=active,
            width=self.moe_intermediate_size,
            shared=self.moe_shared_expert_intermediate_size,
            shared_bias=self.mlp_bias,
            activation=self.mlp_hidden_act,
            gated=False,
            latent=self.moe_latent_size,
        )

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> tuple[FamilyConfig, dict[str, Any], list[str]]:
        """The checked fields; those of experts take no default where no layer has any."""
        config, defaulted, unknown = validate(cls, raw)
        assert isinstance(config, Config)
        routed = MOE in config.kinds()
        kept = {name: value for name, value in defaulted.items() if routed or name not in OF_EXPERTS}
        return config, kept, unknown

    def architecture(self) -> Transformer:
        """A block for each operator."""
        if self.tie_word_embeddings:
            raise self.refused("tie_word_embeddings", True)
        kinds, network = (
            self.kinds(),
            FeedForward(
                hidden=self.hidden_size,
                width=self.intermediate_size,
                bias=self.mlp_bias,
                activation=self.mlp_hidden_act,
            ),
        )
        parts: dict[str, Attention | Mamba2 | FeedForward | Experts]
        parts = {FULL: self.attention(rotary=None), MAMBA: self.mixer(), MLP: network}
        if MOE in kinds:
            parts[MOE] = self.experts()
        made = {kind: Block.of(parts[kind], norm=self.norm()) for kind in dict.fromkeys(kinds)}
        return self.decoder([made[kind] for kind in kinds])

    def class_cannot(self) -> str | None:
        """It needs a layer with attention, whose cache tells it how many tokens came before."""
        return None if FULL in self.kinds() else "it does not run without a layer that has attention"

    def class_runs_more(self, work: Workload) -> Mapping[str, int]:
        """The class convolves what it pads, too."""
        return mamba2_more(self.conv_kernel, work)

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """States passed by a product over all pairs of chunks."""
        return passed(self.mixer(), work)
