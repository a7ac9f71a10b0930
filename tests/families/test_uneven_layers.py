"""Models whose layers differ in size and that transformers has no class for: totals. Kind: golden, refusal."""

from typing import Any

import pytest

from tests.families import TINY
from tfacct import load
from tfacct.base.errors import ConfigError
from tfacct.loading import presets
from tfacct.loading.model import load_model

OPENELM_270M = {
    "model_type": "openelm", "vocab_size": 32_000, "model_dim": 1280, "num_transformer_layers": 16, "head_dim": 64,
    "max_context_length": 2048, "num_query_heads": [12] * 5 + [16] * 7 + [20] * 4,
    "num_kv_heads": [3] * 5 + [4] * 7 + [5] * 4, "ffn_dim_divisor": 256, "ffn_with_glu": True,
    "ffn_multipliers": [0.5, 0.73, 0.97, 1.2, 1.43, 1.67, 1.9, 2.13, 2.37, 2.6, 2.83, 3.07, 3.3, 3.53, 3.77, 4.0],
    "normalize_qk_projections": True, "share_input_output_layers": True,
}  # fmt: skip


def test_openelm_has_the_totals_of_its_paper() -> None:
    """Mehta et al., "OpenELM" (arXiv 2404.14619): 0.27 B and 1.08 B."""
    assert load_model("270m", OPENELM_270M).parameters == 271_527_168
    assert round(presets.load("openelm-1.1b").parameters / 1e9, 2) == 1.08


def test_nemotron_super_keeps_keys_in_its_layers_with_attention_alone() -> None:
    """49 of 80 layers have attention, of 8 key heads of 128: 2 · 49 · 8 · 128 numbers a token, of two bytes each."""
    ours = presets.load("llama-3.3-nemotron-super-49b")
    assert load("llama-3.3-nemotron-super-49b").evaluate("kv_bytes_per_token", batch=[1])[0] == 2 * 49 * 8 * 128 * 2
    assert ours.parameters == 49_867_145_216  # as its checkpoint's page has it, and by arithmetic


def test_a_width_is_rounded_as_deci_rounds_it() -> None:
    """int(2 · 1.0 · 8192 / 3) = 5461, and the next multiple of 256 is 5632."""
    parameters = presets.load("llama-3.3-nemotron-super-49b").ledger.parameters(unfolded=True)
    assert parameters["blocks.54.mlp.up_proj.weight"] == 8192 * 5632
    assert "blocks.54.attn.q_proj.weight" not in parameters and "blocks.54.attn_norm.weight" not in parameters


def test_keys_of_each_layer_of_deci_are_its_own() -> None:
    """48 wide, heads of 6: keys and values of 4, 2, 2 and 4 heads."""
    parameters = load_model("deci", TINY["deci"]).ledger.parameters(unfolded=True)
    keys = [parameters[f"blocks.{number}.attn.k_proj.weight"] for number in range(4)]
    assert keys == [48 * 6 * heads for heads in (4, 2, 2, 4)]


@pytest.mark.parametrize(
    ("part", "fields", "reason"),
    [
        ("attention", {"replace_with_linear": True}, r"block_configs\[0\].attention.replace_with_linear = true"),
        ("attention", {"window_length": 4096}, "window_length = 4096"),
        ("attention", {"n_heads_in_group": None}, "n_heads_in_group = null"),
        ("ffn", {"ffn_mult": True}, "ffn_mult = true"),
        ("ffn", {"hidden_act": "relu"}, "ffn.hidden_act"),
    ],
)
def test_a_part_of_a_layer_that_is_not_understood_is_refused(part: str, fields: dict[str, Any], reason: str) -> None:
    tiny = TINY["nemotron-nas"]
    layers = [dict(layer) for layer in tiny["block_configs"]]
    layers[0][part] = {**layers[0][part], **fields}
    with pytest.raises(ConfigError, match=reason):
        load_model("mine", {**tiny, "block_configs": layers})


def test_one_kind_set_as_layer_types_is_that_of_every_layer() -> None:
    """gemma-3-27b: keys and values of 62 layers, 16 heads of 128, in bf16."""
    full = load("gemma-3-27b-text", layer_types="full_attention")
    assert full.kv(ctx=3000).kv_cache_bytes == 62 * 2 * 16 * 128 * 2 * 3000
