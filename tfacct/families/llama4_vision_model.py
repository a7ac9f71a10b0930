"""Llama 4's encoder of images: a class token behind the patches, heads turned by column and row, patches joined."""

from math import isqrt
from typing import ClassVar

from tfacct.architecture.parts import Patches, Positions, Rotary, Shuffled
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Fraction, Layers, Real, share
from tfacct.families._endings import Ending
from tfacct.families._qwen_vision import BASE, turned_by
from tfacct.families._towers import ImageTower

RELEASED = "2025-04"

LAYER = "model.layers.*"


class Config(ImageTower):
    """`Llama4VisionConfig`, with its class's defaults."""

    hidden_size: Count = 768
    intermediate_size: Count = 5632
    num_hidden_layers: Layers = 34
    num_attention_heads: Count = 16
    image_size: Count = 448
    patch_size: Count = 14
    norm_eps: Real = 1e-5
    pixel_shuffle_ratio: Fraction = 0.5
    projector_input_dim: Count = 4096
    projector_output_dim: Count = 4096
    rope_theta: Real | None = None
    rope_parameters: Fields | None = None

    stems: ClassVar = ("Llama4Vision",)
    body: ClassVar = ""
    uncounted: ClassVar = ImageTower.uncounted | {"norm_eps", "rope_parameters", "rope_theta"}
    harmless: ClassVar = (
        ImageTower.harmless
        | frozenset(
            "vision_output_dim vision_feature_select_strategy vision_feature_layer multi_modal_projector_bias".split()
        )
        | {"projector_dropout"}
    )
    patch_bias: ClassVar = False
    class_source_whole: ClassVar = True
    heads: ClassVar = {"Model": Ending("models.llama4.modeling_llama4.Llama4VisionModel", "none")}
    hf_paths: ClassVar = {
        "embed.project": "patch_embedding.linear",
        "embed_norm": "layernorm_pre",
        "blocks.*.attn_norm": f"{LAYER}.input_layernorm",
        **{f"blocks.*.attn.{name}_proj": f"{LAYER}.self_attn.{name}_proj" for name in "qkvo"},
        **{f"blocks.*.attn.{name}": f"{LAYER}.self_attn" for name in ("scores", "values")},
        "blocks.*.mlp_norm": f"{LAYER}.post_attention_layernorm",
        "blocks.*.mlp.up_proj": f"{LAYER}.mlp.fc1",
        "blocks.*.mlp.down_proj": f"{LAYER}.mlp.fc2",
        "final_norm": "layernorm_post",
        "merger.up_proj": "vision_adapter.mlp.fc1",
        "merger.down_proj": "vision_adapter.mlp.fc2",
    }
    hf_tensors: ClassVar = {
        "embed.class.weight": "class_embedding",
        "pos_embed.weight": "positional_embedding_vlm",
    }

    @property
    def merged(self) -> int:
        """Patches that become one row. Raises ConfigError."""
        side = round(1 / self.pixel_shuffle_ratio)
        if side * self.pixel_shuffle_ratio != 1:
            raise self.refused("pixel_shuffle_ratio", self.pixel_shuffle_ratio)
        return side**2

    def architecture(self) -> Transformer:
        """Patches and a class token, positions and a norm, pre-norm blocks, a norm and the adapter. Raises
        ConfigError."""
        patches, hidden = self.merged, self.hidden_size
        across, side = self.image_size // self.patch_size, isqrt(patches)
        share(max(across, 1), side, "the patches on a side of an image by 1 / pixel_shuffle_ratio =")
        if self.intermediate_size != patches * hidden:
            raise ConfigError(
                f"intermediate_size = {self.intermediate_size:,} is not the width of {patches:,} patches of {hidden:,},"
                " which the class joins"
            )
        if self.projector_input_dim != self.projector_output_dim:
            raise ConfigError(
                f"projector_input_dim = {self.projector_input_dim:,} is not projector_output_dim ="
                f" {self.projector_output_dim:,}: the class does not run"
            )
        share(self.head_dim, 4, "the size of a head by 4")
        said = self.rope_parameters or {}
        rotary = Rotary(turned_by(said, self.rope_theta or BASE), pairs="neighbours", grid=True, tiles=(), marked=True)
        return Transformer(
            embed=Patches(
                channels=self.num_channels, pixels=self.patch_size**2, hidden=hidden, front=1, bias=False, last=True
            ),
            positions=Positions(rows=self.context, hidden=hidden),
            embed_norm=self.norm(),
            stacks=(self.stack(rotary=rotary),),
            final_norm=self.norm(),
            merger=Shuffled(hidden=hidden, patches=patches, out=self.projector_output_dim, front=1),
            head=None,
        )
