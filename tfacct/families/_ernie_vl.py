"""ERNIE 4.5 VL in its makers' files: both sets of experts in lists, the language model's fields in the whole."""

from collections.abc import Mapping
from typing import Any

from tfacct.base.complaints import format_value
from tfacct.base.errors import ConfigError
from tfacct.base.spelling import setting
from tfacct.families.family_config import FamilyConfig
from tfacct.families.fields import MOST_LAYERS

TYPE, WHOLE = "ernie4_5_moe_vl", "ernie4_5_vl_moe"
VISION = {"embed_dim": "hidden_size"}
"""Fields of its encoder of images, and the class's words for them; hidden_size is there too, and the same."""
RANGE = ("moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval")
"""Fields that say which layers have experts, as ERNIE 4.5's do."""
UNREAD = frozenset(
    """
    moe_use_hard_gate moe_multimodal_dispatch_use_allgather moe_multimodal_paired_experts moe_group
    moe_with_send_router_loss moe_use_aux_free moe_gate moe_capacity moe_norm_gate_logits moe_reverse_token_drop
    moe_use_token_type_bias moe_fuse_experts moe_all_to_all_dropout moe_aux_loss_lambda moe_dropout_prob
    moe_orthogonal_loss_lambda moe_z_loss_lambda moe_layer_feed_fake_token moe_dense_experts_token_type_id
    im_patch_id pixel_hidden_size spatial_conv_size temporal_conv_size use_temporal_conv freq_allocation rope_3d
    modality_detach max_text_id vision_fp8 sequence_parallel auto_map compression_ratio use_mem_eff_attn
    use_flash_attention use_rmsnorm fuse_rms_norm weight_share_add_bias ignored_index micro_batch_size
    """.split()
)
"""Fields of theirs on which no count of the language model's depends: most are the trainer's."""


def told(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    """A config of their type in the words of transformers' class; any other as it is. Raises ConfigError."""
    if raw.get("model_type") != TYPE:
        return raw
    whole = {name: raw[name] for name in ("architectures", "tie_word_embeddings") if name in raw}
    others = {name: value for name, value in raw.items() if name.endswith("_config") and value is not None}
    if isinstance(seen := others.get("vision_config"), Mapping):
        others["vision_config"] = _of_images(seen)
    text = {name: value for name, value in raw.items() if name not in others and name not in UNREAD}
    text = {name: value for name, value in text.items() if name not in ("model_type", "architectures", *RANGE)}
    if isinstance(count := raw.get("moe_num_experts"), list):
        text["moe_num_experts"] = _alike("moe_num_experts", count)
    if any(name in raw for name in RANGE):
        text["mlp_layer_types"] = _networks(raw)
    return {**whole, **others, "model_type": WHOLE, "text_config": text}


def _of_images(seen: Mapping[str, Any]) -> dict[str, Any]:
    """The encoder's fields in the class's words."""
    own = {VISION.get(name, name): value for name, value in seen.items() if name != "model_type"}
    hidden, times = own.get("hidden_size"), own.pop("mlp_ratio", None)
    if isinstance(hidden, int) and isinstance(times, int):
        own["intermediate_size"] = hidden * times
    return own


def _networks(raw: Mapping[str, Any]) -> list[str]:
    """The kind of each layer's network: those of a range have experts of both sets. Raises ConfigError."""
    layers = raw.get("num_hidden_layers")
    if not isinstance(layers, int) or isinstance(layers, bool) or not 0 < layers <= MOST_LAYERS:
        raise ConfigError(
            f"num_hidden_layers must be a whole number from 1 to {MOST_LAYERS:,}, not {format_value(layers)}"
        )
    step = _number("moe_layer_interval", raw.get("moe_layer_interval", 1), 1)
    sets = []
    for number in (0, 1):
        first, last = (_of_set(raw, name, number) for name in RANGE[:2])
        last = layers - 1 if last == -1 else last
        sets.append([first <= layer <= last and (layer + 1) % step == 0 for layer in range(layers)])
    if sets[0] != sets[1]:
        raise ConfigError(
            "moe_layer_start_index and moe_layer_end_index give experts for text and for images to other layers",
            f"no class has that; to count it as a class would: {setting('mlp_layer_types')}",
        )
    return ["sparse" if one else "dense" for one in sets[0]]


def _of_set(raw: Mapping[str, Any], name: str, number: int) -> int:
    """A field's number for one set of experts. Without it, the first layer is dense."""
    value = raw.get(name, 1 if name == RANGE[0] else -1)
    if isinstance(value, list):
        if len(value) != 2:
            raise ConfigError(f"{name} = {format_value(value)} must have a number for text and one for images")
        value = value[number]
    return _number(name, value, -1)


def _number(name: str, value: object, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ConfigError(f"{name} must be a whole number from {least}, not {format_value(value)}")
    return value


def _alike(name: str, pair: list[Any]) -> Any:
    """The one number of both sets. Raises ConfigError."""
    if len(pair) != 2 or pair[0] != pair[1]:
        raise FamilyConfig.refused(name, pair)
    return pair[0]
