"""Configs of encoders and projectors."""

from typing import Any

from tests.families import TINY
from tests.helpers.multimodal import COMPOSITES, text_of
from tests.helpers.published import PUBLISHED
from tfacct.families import multimodal

VISIONS, AUDIOS = multimodal.towers("vision"), multimodal.towers("audio")
ALONE = tuple(whole for whole, tower in VISIONS.items() if not tower.any_type)
"""Those that build one encoder only."""
LLAVA, DEVSTRAL = PUBLISHED["llava-1.5-7b"], PUBLISHED["devstral-small-2"]


VISION = ["vision_tower", "multi_modal_projector"]


def whole_of(whole: str, **more: Any) -> dict[str, Any]:
    """A tiny config of a whole that has a projector, all sizes distinct."""
    part = "audio" if whole in AUDIOS else "vision"
    tower = {**TINY[multimodal.towers(part)[whole].type]}
    text = text_of(whole) if whole in COMPOSITES else {}
    text.pop("mlp_layer_types", None)  # it has one layer
    if part == "vision":
        del tower["model_type"]
    if whole == "llama4":
        tower["vision_output_dim"] = tower["projector_output_dim"]
    if whole == "voxtral":  # which reads whole numbers of positions side by side
        tower["intermediate_size"] = 3 * tower["hidden_size"]
    if whole == "phi4_multimodal":
        return {"model_type": whole, "num_hidden_layers": 1, "vision_config": tower, "audio_config": PHI_4_AUDIO}
    if whole == "t5gemma2":  # of whose two sides one sees
        side = TINY[whole]["encoder"]["text_config"]
        return {"model_type": whole, "encoder": {"text_config": side, "vision_config": tower}, "decoder": side}
    return {"model_type": whole, "text_config": text, f"{part}_config": tower, **more}


PHI_4_AUDIO = {"hidden_size": 8, "num_blocks": 1, "num_attention_heads": 2, "intermediate_size": 9}
