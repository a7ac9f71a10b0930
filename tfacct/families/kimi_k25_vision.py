"""Kimi-K2.5's encoder of images (MoonViT): pre-norm blocks turned by column and row, and a table of positions."""

from typing import ClassVar

from tfacct.architecture.parts import Patches, Positions, Rotary
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.families._base import Count, Fields, Layers, Word, share
from tfacct.families._endings import Ending
from tfacct.families._qwen_vision import turned_by
from tfacct.families._towers import Tower

RELEASED = "2026-01"

CHANNELS = 3
LAYER = "layers.*"


class Config(Tower):
    """`Kimi_K25VisionConfig`, with its class's defaults."""

    hidden_size: Count = 1152
    intermediate_size: Count = 4304
    num_hidden_layers: Layers = 27
    num_attention_heads: Count = 16
    hidden_act: Word = "gelu_pytorch_tanh"
    patch_size: Count = 14
    pos_emb_height: Count = 64
    pos_emb_width: Count = 64
    pos_emb_time: Count = 4
    merge_kernel_size: tuple[Count, Count] = (2, 2)
    rope_parameters: Fields | None = None

    stems: ClassVar = ("Kimi_K25Vision",)
    body: ClassVar = ""
    aliases: ClassVar = {
        **{f"init_pos_emb_{side}": f"pos_emb_{side}" for side in ("height", "width", "time")},
        "vt_hidden_size": "hidden_size",
        "vt_intermediate_size": "intermediate_size",
        "vt_num_attention_heads": "num_attention_heads",
        "vt_num_hidden_layers": "num_hidden_layers",
    }
    uncounted: ClassVar = Tower.uncounted | {"pos_emb_time", "merge_kernel_size", "rope_parameters"}
    harmless: ClassVar = Tower.harmless | frozenset(
        """
        merge_type mm_hidden_size mm_projector_type pos_emb_type projector_hidden_act projector_ln_eps text_hidden_size
        video_attn_type
        """.split()
    )
    fixed: ClassVar = Tower.fixed | {"Cc"}
    heads: ClassVar = {"Model": Ending("models.kimi_k25.modeling_kimi_k25.Kimi_K25VisionModel", "none")}
    hf_paths: ClassVar = {
        "embed.project": "patch_embed.proj",
        "blocks.*.attn_norm": f"{LAYER}.norm1",
        **{f"blocks.*.attn.{name}_proj": f"{LAYER}.attn.{name}_proj" for name in "qkv"},
        **{f"blocks.*.attn.{name}": f"{LAYER}.attn" for name in ("scores", "values")},
        "blocks.*.attn.o_proj": f"{LAYER}.attn.proj",
        "blocks.*.mlp_norm": f"{LAYER}.norm2",
        "blocks.*.mlp.up_proj": f"{LAYER}.mlp.fc1",
        "blocks.*.mlp.down_proj": f"{LAYER}.mlp.fc2",
        "final_norm": "final_layernorm",
    }
    hf_tensors: ClassVar = {"pos_embed.weight": "patch_embed.pos_emb.position_embeddings"}

    @property
    def context(self) -> int:
        """Rows of the table of positions."""
        return self.pos_emb_height * self.pos_emb_width

    def architecture(self) -> Transformer:
        """Patches, positions, pre-norm blocks and a norm. Raises ConfigError."""
        if self.pos_emb_height != self.pos_emb_width:
            raise ConfigError(
                f"pos_emb_width = {self.pos_emb_width:,} is not read by the class, which has a square table of"
                f" {self.pos_emb_height:,} rows on a side"
            )
        said = self.rope_parameters or {}
        if said.get("rope_type", "axial") != "axial":
            raise ConfigError(f"rope_type = {said['rope_type']!r}: the class turns by row and column only")
        share(self.head_dim, 4, "the size of a head by 4")
        rotary = Rotary(turned_by(said), grid=True, tiles=(1,), woven=True)
        return Transformer(
            embed=Patches(channels=CHANNELS, pixels=self.patch_size**2, hidden=self.hidden_size),
            positions=Positions(rows=self.context, hidden=self.hidden_size, tiles=(1,)),
            stacks=(self.stack(rotary=rotary),),
            final_norm=self.norm(),
            head=None,
        )
