"""Published configs of multimodal models with a known language model, and of heads in their files. Kind: golden,
refusal.
"""

import pytest

from tests.families import TINY
from tfacct.base.errors import ConfigError
from tfacct.loading.model import load_model


def test_glm_4v_is_chatglm_beside_what_sees() -> None:
    plain = {
        **{"model_type": "chatglm", "num_layers": 2, "hidden_size": 24, "num_attention_heads": 4, "kv_channels": 8},
        **{"ffn_hidden_size": 36, "seq_length": 64, "padded_vocab_size": 96, "multi_query_attention": True},
        **{"multi_query_group_num": 2, "add_qkv_bias": True},
    }
    seeing = {**plain, "vision_config": {"hidden_size": 9}, "boi_token_id": 95, "eoi_token_id": 94}
    ours = load_model("mine", seeing)
    assert (ours.left_out, ours.unknown) == (("vision_config",), ())
    assert ours.ledger.parameters() == load_model("mine", plain).ledger.parameters()


def test_vibevoice_keeps_its_language_model_in_decoder_config_in_files_of_before() -> None:
    whole = {"model_type": "vibevoice", "decoder_config": TINY["qwen2"], "diffusion_head_config": {"hidden_size": 9}}
    ours = load_model("mine", whole)
    assert ours.left_out == ("diffusion_head_config",)
    assert ours.ledger.parameters() == load_model("mine", TINY["qwen2"]).ledger.parameters()


def test_the_score_of_internlm2s_reward_models() -> None:
    """`v_head` of their own code: one product without a bias, of which one position's score is kept."""
    ours = load_model("mine", {**TINY["internlm2"], "architectures": ["InternLM2ForRewardModel"], "reward_token_id": 5})
    body = load_model("mine", {**TINY["internlm2"], "architectures": ["InternLM2Model"]})
    assert ours.ledger.parameters() == {**body.ledger.parameters(), "classifier.weight": 48}


def test_fields_of_lagunas_files_that_its_class_does_not_read_agree_or_are_refused() -> None:
    """Laguna-S-2.1's name the dense layers and the gates a second time."""
    plain = {**TINY["laguna"], "mlp_layer_types": ["dense", "sparse", "sparse"], "gating": "per-head"}
    said = {"decoder_sparse_step": 1, "mlp_only_layers": [0], "gating_types": ["per_head"] * 3}
    ours = load_model("mine", {**plain, **said})
    assert (ours.unknown, ours.ledger.parameters()) == ((), load_model("mine", plain).ledger.parameters())
    for name, other in {"decoder_sparse_step": 2, "mlp_only_layers": [1], "gating_types": ["per_element"] * 3}.items():
        with pytest.raises(ConfigError, match=f"{name} = .* changes the counts"):
            load_model("mine", {**plain, **said, name: other})
