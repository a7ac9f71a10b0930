"""Idefics3's encoder of images: SigLIP's without a pooler, for images of any sides."""

from collections.abc import Mapping
from typing import ClassVar

from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Word
from tfacct.families._endings import Ending
from tfacct.families._towers import ImageTower, class_table

RELEASED = "2024-08"


class Config(ImageTower):
    """`Idefics3VisionConfig`, with its class's defaults."""

    hidden_size: Count = 1152
    num_attention_heads: Count = 16
    patch_size: Count = 32
    hidden_act: Word = "gelu_pytorch_tanh"
    layer_norm_eps: Real = 1e-6

    stems: ClassVar = ("Idefics3Vision",)
    body: ClassVar = ""
    harmless: ClassVar = ImageTower.harmless | {"max_image_size", "size", "tie_word_embeddings", "use_base_siglip"}
    class_token: ClassVar = False
    fixed: ClassVar = ImageTower.fixed - {"Xc"}
    heads: ClassVar[Mapping[str, Ending]] = {"Transformer": Ending("AutoModel", "none")}
    hf_paths: ClassVar = class_table("", "patch_embedding", ("final_norm", "post_layernorm"))

    def architecture(self) -> Transformer:
        """Patches, positions, pre-norm blocks and a norm."""
        return Transformer(**self.tables(), stacks=(self.stack(),), final_norm=self.norm(), head=None)
