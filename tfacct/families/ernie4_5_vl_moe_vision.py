"""ERNIE 4.5 VL's encoder of images: Qwen2-VL's blocks and a norm behind them; what merges patches stands outside."""

from typing import ClassVar

from tfacct.architecture.parts import FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.families._base import Count, Real, Word
from tfacct.families._endings import Ending
from tfacct.families._qwen_vision import PATHS, QwenVision

RELEASED = "2025-06"


class Config(QwenVision):
    """`Ernie4_5_VLMoeVisionConfig`, with its class's defaults."""

    hidden_size: Count = 1280
    intermediate_size: Count = 5120
    hidden_act: Word = "quick_gelu"
    temporal_patch_size: Count = 1
    temporal_merge_size: Count = 2
    rms_norm_eps: Real = 1e-6

    stems: ClassVar = ("Ernie4_5_VLMoeVisionTransformerPretrained",)
    uncounted: ClassVar = QwenVision.uncounted | {
        *("rms_norm_eps", "temporal_merge_size", "temporal_patch_size"),
    }
    harmless: ClassVar = frozenset(("vit_first_fwd_bsz", "attn_sep"))
    heads: ClassVar = {
        "Model": Ending(
            "models.ernie4_5_vl_moe.modeling_ernie4_5_vl_moe.Ernie4_5_VLMoeVisionTransformerPretrainedModel", "none"
        )
    }
    hf_paths: ClassVar = {
        **PATHS,
        "blocks.*.mlp.up_proj": "blocks.*.mlp.fc1",
        "blocks.*.mlp.down_proj": "blocks.*.mlp.fc2",
        "final_norm": "ln",
    }

    @property
    def hidden(self) -> int:
        """hidden_size."""
        return self.hidden_size

    @property
    def eps(self) -> float:
        """rms_norm_eps."""
        return self.rms_norm_eps

    def network(self) -> FeedForward:
        """Network of two products."""
        width = self.intermediate_size
        return FeedForward(hidden=self.hidden_size, width=width, bias=True, activation=self.hidden_act)

    def architecture(self) -> Transformer:
        """Patches, pre-norm blocks and a norm. Raises ConfigError."""
        if self.temporal_patch_size != 1:  # the class reads no such field
            raise self.refused("temporal_patch_size", self.temporal_patch_size)
        return self.whole(None, final_norm=self.norm())
