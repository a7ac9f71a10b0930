"""Published files as they are written: fields that change no count are no refusal, and those that do are one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.families import TINY
from tfacct.base.errors import ConfigError
from tfacct.loading.model import subject

KIMI_LINEAR = {
    "model_type": "kimi_linear",
    "num_hidden_layers": 4,
    "linear_attn_config": {
        "full_attn_layers": [4],
        "kda_layers": [1, 2, 3],
        "head_dim": 16,
        "num_heads": 6,
        "short_conv_kernel_size": 4,
    },
}


@pytest.mark.parametrize(
    ("family", "fields"),
    [
        ("glm_moe_dsa", {"index_share_for_mtp_iteration": True}),  # GLM-5.2
        ("glm_moe_dsa", {"layer_types": ["deepseek_sparse_attention"] * TINY["glm_moe_dsa"]["num_hidden_layers"]}),
        ("mimo_v2_flash", {"sliding_window_size": 128, "attention_chunk_size": 128}),
        ("minimax_m2", {"attn_type_list": [1] * TINY["minimax_m2"]["num_hidden_layers"]}),
        ("nemotron_h", {"norm_eps": 1e-5}),
        ("qwen3_5_text", {"output_gate_type": "swish"}),  # Qwen3.6
    ],
)
def test_fields_of_published_files_that_change_no_count_are_read(family: str, fields: dict[str, Any]) -> None:
    plain = subject("mine", {**TINY[family], **{name: fields[name] for name in fields if "window" in name}})
    ours = subject("mine", {**TINY[family], **fields})
    assert ours.unknown == ()
    assert ours.ledger.parameters() == plain.ledger.parameters()


@pytest.mark.parametrize(
    ("family", "fields", "named"),
    [
        ("mimo_v2_flash", {"sliding_window_size": 128, "attention_chunk_size": 64}, "attention_chunk_size"),
        ("minimax_m2", {"attn_type_list": [0, 1]}, "attn_type_list"),
        ("kimi_linear", {"mla_use_output_gate": True}, "mla_use_output_gate"),  # Kimi K3, and those below
        ("kimi_linear", {"routed_expert_hidden_size": 3584}, "routed_expert_hidden_size"),
        ("kimi_linear", {"attn_res_block_size": 12}, "attn_res_block_size"),
        ("kimi_linear", {"linear_attn_config": {"use_full_rank_gate": True}}, "linear_attn_config.use_full_rank_gate"),
    ],
)
def test_fields_of_published_files_that_change_counts_are_refused(family: str, fields: dict, named: str) -> None:
    with pytest.raises(ConfigError, match=f"{named} = .* changes the counts"):
        subject("mine", {**TINY[family], **fields})


def test_a_config_inside_the_language_models_is_not_another_models() -> None:
    """linear_attn_config says which layers have DeltaNet; a model of several keeps it inside its text_config."""
    whole = {"model_type": "kimi_k3", "tie_word_embeddings": False, "vision_config": {"hidden_size": 9}}
    ours = subject("mine", {**whole, "text_config": {**KIMI_LINEAR, "tie_word_embeddings": False}})
    assert ours.left_out == ("vision_config",)
    assert ours.ledger.parameters() == subject("mine", KIMI_LINEAR).ledger.parameters()


def test_a_tower_that_is_null_is_not_said_to_be_left_out() -> None:
    """Gemma 4's larger models hear nothing: their audio_config is null."""
    text = {name: value for name, value in TINY["gemma4_text"].items() if name != "model_type"}
    whole = {"model_type": "gemma4", "text_config": text, "vision_config": {"hidden_size": 9}, "audio_config": None}
    assert subject("mine", whole).left_out == ("vision_config",)
