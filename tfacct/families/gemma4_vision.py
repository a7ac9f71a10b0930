"""Gemma 4's encoder of images: norms around each sublayer, heads turned by column and row, and means of patches."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, Averaged, FeedForward, Norm, Patches, Positions, QKNorm, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, FamilyConfig, Fields, Layers, Real, Switch, Word, share
from tfacct.families._endings import Ending
from tfacct.families._qwen_vision import turned_by
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.workload import Workload

RELEASED = "2026-04"

CHANNELS = 3
BASE = 100.0
LAYER = "encoder.layers.*"


class Config(FamilyConfig):
    """`Gemma4VisionConfig`, with its class's defaults."""

    hidden_size: Count = 768
    intermediate_size: Count = 3072
    num_hidden_layers: Layers = 16
    num_attention_heads: Count = 12
    num_key_value_heads: Count = 12
    head_dim: Count = 64
    hidden_activation: Word = "gelu_pytorch_tanh"
    rms_norm_eps: Real = 1e-6
    attention_bias: Switch | None = False
    rope_parameters: Fields | None = None
    patch_size: Count = 16
    pooling_kernel_size: Count = 3
    position_embedding_size: Count = 10240
    standardize: Switch = False
    default_output_length: Count = 280

    stems: ClassVar = ("Gemma4Vision",)
    body: ClassVar = ""
    uncounted: ClassVar = frozenset("hidden_activation rms_norm_eps attention_bias rope_parameters standardize".split())
    harmless: ClassVar = frozenset("use_clipped_linears global_head_dim max_position_embeddings".split())
    fixed: ClassVar = frozenset(("Cc", "Xy"))
    heads: ClassVar = {"Model": Ending("models.gemma4.modeling_gemma4.Gemma4VisionModel", "none")}
    class_extra: ClassVar = "it takes the means of patches by a product with their places"
    hf_paths: ClassVar = {
        "embed.project": "patch_embedder.input_proj",
        "blocks.*.attn_norm": f"{LAYER}.input_layernorm",
        "blocks.*.attn_post_norm": f"{LAYER}.post_attention_layernorm",
        "blocks.*.mlp_norm": f"{LAYER}.pre_feedforward_layernorm",
        "blocks.*.mlp_post_norm": f"{LAYER}.post_feedforward_layernorm",
        **{f"blocks.*.attn.{name}_proj": f"{LAYER}.self_attn.{name}_proj.linear" for name in "qkvo"},
        **{f"blocks.*.attn.{name}_norm": f"{LAYER}.self_attn.{name}_norm" for name in "qk"},
        **{f"blocks.*.attn.{name}": f"{LAYER}.self_attn" for name in ("scores", "values")},
        **{f"blocks.*.mlp.{name}_proj": f"{LAYER}.mlp.{name}_proj.linear" for name in ("gate", "up", "down")},
        "merger.average": "pooler",
    }
    hf_tensors: ClassVar = {"pos_embed.weight": "patch_embedder.position_embedding_table"}

    @property
    def context(self) -> int:
        """Patches of an image that gives the language model default_output_length rows."""
        return self.default_output_length * self.pooling_kernel_size**2

    @property
    def tiles(self) -> tuple[int, ...]:
        """Sides of the squares of patches of which means are taken."""
        return (self.pooling_kernel_size,)

    def norm(self) -> Norm:
        """RMSNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=self.rms_norm_eps)

    def attention(self) -> Attention:
        """Heads of a size of their own, normed, each half turned by itself. Raises ConfigError."""
        said = self.rope_parameters or {}
        if said.get("rope_type", "axial") not in ("axial", "default"):
            raise ConfigError(f"rope_type = {said['rope_type']!r}: the class turns by column and row only")
        if self.attention_bias:  # which the class does not read
            raise self.refused("attention_bias", True)
        heads = self.num_key_value_heads
        rotary = Rotary(turned_by(said, BASE), grid=True, tiles=self.tiles, pairs="quarters")
        return Attention(
            hidden=self.hidden_size,
            kv_heads=heads,
            group=share(self.num_attention_heads, heads, "num_attention_heads by num_key_value_heads"),
            head_dim=4 * share(self.head_dim, 4, "head_dim by 4"),
            qk_norm=QKNorm(self.rms_norm_eps),
            value_norm=self.rms_norm_eps,
            scale=1.0,
            causal=False,
            rotary=rotary,
        )

    def architecture(self) -> Transformer:
        """Patches, two tables of positions, blocks, and means of patches. Raises ConfigError."""
        hidden, norm, together = self.hidden_size, self.norm(), self.pooling_kernel_size**2
        width, activation = self.intermediate_size, self.hidden_activation
        network = FeedForward(hidden=hidden, width=width, gated=True, activation=activation)
        block = Block.of(self.attention(), network, norm=norm, post_norm=norm)
        ends: dict[str, Any] = {
            "embed": Patches(channels=CHANNELS, pixels=self.patch_size**2, hidden=hidden, bias=False),
            "positions": Positions(rows=self.position_embedding_size, hidden=hidden, crossed=True, tiles=self.tiles),
            "merger": Averaged(
                hidden=hidden, patches=together, eps=None, factor=float(hidden) ** 0.5, standard=self.standardize
            ),
        }
        return Transformer(stacks=(Stack(block, self.num_hidden_layers),), final_norm=None, head=None, **ends)

    def class_adds(self, work: Workload) -> Mapping[str, int]:
        """The product of patches and their places, where there are fewer rows than patches."""
        together = self.pooling_kernel_size**2
        rows = 0 if together == 1 else work.tokens // together
        return {"merger.average": FLOPS_PER_MULTIPLY_ADD * work.batch * rows * work.tokens * self.hidden_size}
