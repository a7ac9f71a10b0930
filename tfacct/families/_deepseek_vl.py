"""DeepSeek-VL2 and DeepSeek-OCR: their files hold a language model with latent attention or with plain heads."""

from collections.abc import Mapping
from typing import Any

from tfacct.families.family_config import FamilyConfig

TYPE, FIELD = "deepseek_vl_v2", "language_config"
LATENT = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
HEADS = {"use_mla": True, "lm_head": True, "rm_head": False}
"""Fields that its code reads → what it takes where they are left out."""


def told(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config of DeepSeek-VL2's type whose language model says which one it is. Its code builds
    `DeepseekV2ForCausalLM` of language_config, with DeepSeek-MoE's attention where use_mla is false, and calls the
    whole by several names. Raises ConfigError."""
    inside = raw.get(FIELD)
    if not isinstance(inside, Mapping):
        return raw
    for name in ("lm_head", "rm_head"):
        if inside.get(name, HEADS[name]) is not HEADS[name]:
            raise FamilyConfig.refused(name, inside[name])
    own = {name: value for name, value in inside.items() if name not in HEADS}
    latent = inside.get("use_mla", HEADS["use_mla"])
    if latent is False:
        for name in LATENT:
            if own.pop(name, None):
                raise FamilyConfig.refused(name, inside[name])
    if latent is False and own.get("architectures") == ["DeepseekV2ForCausalLM"]:
        del own["architectures"]  # its code calls both so
    kind = "deepseek" if latent is False else "deepseek_v2"
    return {**raw, FIELD: {"tie_word_embeddings": False, **own, "model_type": kind}}
