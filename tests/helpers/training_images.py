"""Random small encoders of images whose training step is measured."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Pick: TypeAlias = Callable[[list[Any]], Any]
Config: TypeAlias = dict[str, Any]


def vit(pick: Pick, config: Config) -> Config:
    patch = pick([2, 3, 4])
    return {
        **{name: config[name] for name in ("num_hidden_layers", "num_attention_heads", "intermediate_size")},
        "hidden_size": config["num_attention_heads"] * config["head_dim"],
        "image_size": patch * pick([1, 2, 4, 5]),
        "patch_size": patch,
        "num_channels": pick([1, 3]),
        "hidden_act": pick(["gelu", "gelu", "relu", "gelu_new"]),
        "hidden_dropout_prob": pick([0.0, 0.0, 0.1]),
        "attention_probs_dropout_prob": pick([0.0, 0.0, 0.1]),
        "qkv_bias": pick([True, True, False]),
        "num_labels": pick([2, 3, 7]),
        "architectures": ["ViTForImageClassification"],
    }


def deit(pick: Pick, config: Config) -> Config:
    return {**vit(pick, config), "architectures": ["DeiTForImageClassification"]}


IMAGES: Mapping[str, Callable[[Pick, Config], Config]] = {draw.__name__: draw for draw in (deit, vit)}
LEARNED = {"vit": 1, "deit": 2}
"""Tokens in front of an image's patches."""


def tokens_of(family: str, config: Config) -> int:
    """Tokens of an image."""
    return int(config["image_size"] // config["patch_size"]) ** 2 + LEARNED[family]
