"""Pixtral's encoder of images: Llama's block over patches that see one another, turned by row and column."""

from collections.abc import Mapping
from typing import Any, ClassVar

from tfacct.architecture.blocks import Block, Stack
from tfacct.architecture.parts import Attention, FeedForward, Norm, Patches
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Fields, Real, Word, even, rotary, share
from tfacct.families._endings import Ending
from tfacct.families._towers import ImageTower
from tfacct.ledger.lines import FLOPS_PER_MULTIPLY_ADD
from tfacct.ledger.workload import Workload

RELEASED = "2024-09"

EPS = 1e-5
LAYER = "transformer.layers.*"


class Config(ImageTower):
    """`PixtralVisionConfig`, with its class's defaults."""

    hidden_size: Count = 1024
    intermediate_size: Count = 4096
    num_hidden_layers: Count = 24
    num_attention_heads: Count = 16
    image_size: Count = 1024
    hidden_act: Word = "gelu"
    rope_theta: Real | None = None
    rope_parameters: Fields | None = None
    own_head_dim: Count | None = None

    stems: ClassVar = ("PixtralVision",)
    body: ClassVar = ""
    aliases: ClassVar = {"head_dim": "own_head_dim"}
    uncounted: ClassVar = ImageTower.uncounted | {"rope_theta", "rope_parameters", "own_head_dim"}
    class_token: ClassVar = False
    fixed: ClassVar = ImageTower.fixed - {"Xc"}
    heads: ClassVar[Mapping[str, Ending]] = {"Model": Ending("AutoModel", "none")}
    hf_paths: ClassVar = {
        "embed.project": "patch_conv",
        "embed_norm": "ln_pre",
        "blocks.*.attn_norm": f"{LAYER}.attention_norm",
        **{f"blocks.*.attn.{name}_proj": f"{LAYER}.attention.{name}_proj" for name in "qkvo"},
        **{f"blocks.*.attn.{name}": f"{LAYER}.attention" for name in ("scores", "values")},
        "blocks.*.mlp_norm": f"{LAYER}.ffn_norm",
        **{f"blocks.*.mlp.{name}": f"{LAYER}.feed_forward.{name}" for name in ("gate_proj", "up_proj", "down_proj")},
    }
    class_extra: ClassVar = "it scores all patches of a batch against one another, and masks those of other images"

    def norm(self) -> Norm:
        """RMSNorm over the hidden size."""
        return Norm(hidden=self.hidden_size, kind="rms", eps=EPS)

    def architecture(self) -> Transformer:
        """Patches and a norm, then pre-norm blocks. Raises ConfigError."""
        if self.own_head_dim not in (None, self.head_dim):
            raise self.refused("head_dim", self.own_head_dim)
        hidden, heads = self.hidden_size, self.num_attention_heads
        attention = Attention(
            hidden=hidden,
            kv_heads=heads,
            group=1,
            head_dim=2 * even(share(self.head_dim, 2, "head_dim by 2"), "head_dim / 2 ="),
            rotary=rotary(self.rope_theta, None, self.rope_parameters)._replace(grid=True),
            causal=False,
        )
        network = FeedForward(hidden=hidden, width=self.intermediate_size, gated=True, activation=self.hidden_act)
        stack = Stack(Block.of(attention, network, norm=self.norm()), self.num_hidden_layers)
        patches = Patches(channels=self.num_channels, pixels=self.patch_size**2, hidden=hidden, bias=False)
        return Transformer(embed=patches, embed_norm=self.norm(), stacks=(stack,), final_norm=None, head=None)

    def class_adds(self, work: Workload) -> Mapping[str, Any]:
        """Scores and values of patches of other images."""
        others = work.batch * (work.batch - 1) * work.tokens**2
        return {"blocks.*.attn.scores": 2 * FLOPS_PER_MULTIPLY_ADD * others * self.hidden_size}
