"""What the test configs of several families have alike."""

from __future__ import annotations

from typing import Any, TypeAlias

Fields: TypeAlias = dict[str, Any]

SIZES: Fields = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "intermediate_size": 71}
GROUPED: Fields = {**SIZES, "num_key_value_heads": 2, "head_dim": 10}
"""Sizes of most small models: heads · head_dim ≠ hidden."""
LAYERS: Fields = {"vocab_size": 37, "hidden_size": 128, "num_hidden_layers": 2}
PLAIN: Fields = {**LAYERS, "num_attention_heads": 64}
"""What has no default in most families, and heads that fit the default of the others."""
LINEAR, FULL = "linear_attention", "full_attention"
DENSE: Fields = {"first_k_dense_replace": 3}


def without(config: Fields, *names: str) -> Fields:
    """A config less these fields."""
    return {name: value for name, value in config.items() if name not in names}


def in_forms(config: Fields, *forms: str) -> dict[str, Fields]:
    """A config in each of these forms of latent attention."""
    return {form: {**config, "latent_attention": form} for form in forms}


def latent_forms(tiny: Fields, dense: Fields = DENSE) -> dict[str, Fields]:
    """Dense layers only, of each form of latent attention: with and without a latent for the queries."""
    forms = {
        "expanded": ("expanded", None),
        "absorbed": ("absorbed", None),
        "unpacked": ("unpacked", 22),
        "absorbed with a latent for queries": ("absorbed", 22),
    }
    return {
        name: {**tiny, **dense, "latent_attention": form, "q_lora_rank": rank} for name, (form, rank) in forms.items()
    }
