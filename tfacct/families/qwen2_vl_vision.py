"""Qwen2-VL's encoder of images: pre-norm blocks turned by row and column, and four patches merged into one row."""

from typing import ClassVar

from tfacct.architecture.parts import FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Word
from tfacct.families._endings import Ending
from tfacct.families._qwen_vision import PATHS, QwenVision

RELEASED = "2024-09"


class Config(QwenVision):
    """`Qwen2VLVisionConfig`, with its class's defaults."""

    embed_dim: Count = 1280
    hidden_size: Count = 3584
    mlp_ratio: Count = 4
    hidden_act: Word = "quick_gelu"

    stems: ClassVar = ("Qwen2VisionTransformerPretrained",)
    heads: ClassVar = {
        "Model": Ending("models.qwen2_vl.modeling_qwen2_vl.Qwen2VisionTransformerPretrainedModel", "none")
    }
    hf_paths: ClassVar = {
        **PATHS,
        "blocks.*.mlp.up_proj": "blocks.*.mlp.fc1",
        "blocks.*.mlp.down_proj": "blocks.*.mlp.fc2",
        "merger.norm": "merger.ln_q",
        "merger.up_proj": "merger.mlp.0",
        "merger.down_proj": "merger.mlp.2",
    }

    @property
    def hidden(self) -> int:
        """embed_dim."""
        return self.embed_dim

    def network(self) -> FeedForward:
        """Network of mlp_ratio times the width."""
        width = self.embed_dim * self.mlp_ratio
        return FeedForward(hidden=self.embed_dim, width=width, bias=True, activation=self.hidden_act)

    def architecture(self) -> Transformer:
        """Patches, pre-norm blocks and the merger. Raises ConfigError."""
        return self.whole(self.merger(self.hidden_size))
