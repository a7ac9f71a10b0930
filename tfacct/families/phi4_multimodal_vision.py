"""Phi-4-multimodal's encoder of images: SigLIP's, each patch at the nearest of its table's positions."""

from typing import Any, ClassVar

from tfacct.architecture.parts import AttentionPooler
from tfacct.families import siglip_vision_model
from tfacct.families._base import Count, Layers
from tfacct.families._endings import Ending

RELEASED = "2025-03"


class Config(siglip_vision_model.Config):
    """`Phi4MultimodalVisionConfig`, with its class's defaults."""

    hidden_size: Count = 1152
    intermediate_size: Count = 4304
    num_hidden_layers: Layers = 27
    num_attention_heads: Count = 16
    image_size: Count = 448
    patch_size: Count = 14

    stems: ClassVar = ("Phi4MultimodalVision",)
    uncounted: ClassVar = siglip_vision_model.Config.uncounted | {"vision_use_head"}
    harmless: ClassVar = siglip_vision_model.Config.harmless | {"crop_size", "feature_layer", "image_token_id"}
    heads: ClassVar = {
        "Model": Ending(
            "models.phi4_multimodal.modeling_phi4_multimodal.Phi4MultimodalVisionModel", "none", pooler=True
        )
    }

    def pooler(self, hidden: Any) -> AttentionPooler | None:
        """Attention of a learned query. Raises ConfigError."""
        if not self.vision_use_head:  # which the class does not read
            raise self.refused("vision_use_head", False)
        return super().pooler(hidden)
