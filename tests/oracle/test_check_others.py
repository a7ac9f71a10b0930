"""Decoders of other libraries, compared with their configs. A library that is not installed is skipped by name.
Kind: oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tfacct
from tests.helpers.lazy import lazy, needs

torch = lazy("torch")
pytestmark = needs("torch")

X_TRANSFORMERS = """
[model]
vocab = 101
hidden = 48
context = 64
positions = "learned"
tied = false

[attention]
heads = 6
head_dim = 10
bias = false

[feed_forward]
width = 192
bias = true

[norm]
kind = "rms"

[decoder]
layers = 3
"""


def litgpt(name: str, **sets: Any) -> Callable[[], Any]:
    pytest.importorskip("litgpt", reason="its GPT is checked")
    from litgpt.model import GPT, Config

    return lambda: GPT(Config.from_name(name, **sets))


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("Llama-3.1-8B", "llama-3.1-8b"),
        ("pythia-160m", "pythia-160m"),
        ("phi-2", "phi-2"),
        ("OLMo-2-1124-7B", "olmo-2-7b"),
        ("Mistral-7B-v0.3", "mistral-7b-v0.3"),
    ],
)
def test_litgpts_models_are_the_presets(name: str, preset: str) -> None:
    report = tfacct.check(litgpt(name), preset, tokens=16)
    assert report.agrees, report.answer


@pytest.mark.parametrize(
    ("name", "preset", "sets", "first"),
    [
        ("Llama-3.1-8B", "llama-3.1-8b", {"n_query_groups": 32},
         "blocks.0.attn.q_proj + k_proj + v_proj: 12,288 wide in the code, 6,144 in the config"),
        ("Llama-3.1-8B", "llama-3.1-8b", {"head_size": 64},
         "blocks.0.attn.q_proj + k_proj + v_proj: 3,072 wide in the code, 6,144 in the config"),
        ("Llama-3.1-8B", "llama-3.1-8b", {"attn_bias": True},
         "blocks.0.attn.q_proj + k_proj + v_proj.bias: 6,144 parameters in the code, not in the config"),
        # litgpt keeps a head beside the table, which the config ties
        ("Gemma-2-2b", "gemma-2-2b", {},
         "lm_head: a separate weight in the code, tied to the embedding in the config"),
    ],
    ids="heads size bias tie".split(),
)  # fmt: skip
def test_a_mistake_in_litgpts_settings_is_named(name: str, preset: str, sets: dict[str, Any], first: str) -> None:
    report = tfacct.check(litgpt(name, **sets), preset, tokens=16)
    assert report.first_difference == first


def test_litgpts_experts_run_on_a_cpu_because_they_look_at_numbers() -> None:
    sizes: dict[str, Any] = {"n_layer": 2, "n_embd": 48, "n_head": 6, "n_query_groups": 2, "head_size": 8}
    sizes |= {"intermediate_size": 56, "padded_vocab_size": 101, "block_size": 64}
    config: dict[str, Any] = {"model_type": "mixtral", "hidden_size": 48, "num_hidden_layers": 2, "head_dim": 8}
    config |= {"num_attention_heads": 6, "num_key_value_heads": 2, "intermediate_size": 56, "vocab_size": 101}
    config |= {"num_local_experts": 8, "num_experts_per_tok": 2, "max_position_embeddings": 64}
    with pytest.raises(tfacct.TfacctError, match="use device cpu"):
        tfacct.check(litgpt("Mixtral-8x7B-v0.1", **sizes), config, tokens=16)
    assert tfacct.check(litgpt("Mixtral-8x7B-v0.1", **sizes), config, tokens=16, device="cpu").agrees
    three = litgpt("Mixtral-8x7B-v0.1", **sizes, n_expert_per_token=3)
    report = tfacct.check(three, config, tokens=16, device="cpu")
    # 2 · 16 tokens · 48 · 56 for each expert of a token
    each = 2 * 16 * 48 * 56
    assert report.first_difference == (
        f"blocks.0.mlp.experts.gate_proj: {3 * each:,} FLOPs in the code, {2 * each:,} in the config"
    )


@pytest.mark.parametrize(
    ("sets", "first"),
    [
        ({}, None),
        ({"attn_flash": True}, None),
        ({"attn_kv_heads": 2}, "blocks.0.attn.k_proj: 20 wide in the code, 60 in the config"),
        ({"attn_dim_head": 16}, "blocks.0.attn.q_proj: 96 wide in the code, 60 in the config"),
        ({"ff_no_bias": True}, "blocks.0.mlp.up_proj.bias: 192 parameters in the config, not in the code"),
    ],
    ids="right flash heads size bias".split(),
)
def test_x_transformers_whose_blocks_are_two_entries_of_a_list(
    sets: dict[str, Any], first: str | None, tmp_path: Path
) -> None:
    pytest.importorskip("x_transformers", reason="its decoder is checked")
    from x_transformers import Decoder, TransformerWrapper

    (tmp_path / "own.toml").write_text(X_TRANSFORMERS)

    def build() -> Any:
        layers = Decoder(**{"dim": 48, "depth": 3, "heads": 6, "attn_dim_head": 10, **sets})
        return TransformerWrapper(num_tokens=101, max_seq_len=64, attn_layers=layers)

    report = tfacct.check(build, tmp_path / "own.toml", tokens=16)
    assert report.first_difference == first, report.answer
    assert report.agrees == (first is None)


@pytest.mark.parametrize("change", ["heads", None])
def test_torchtunes_llama_is_the_preset(change: str | None) -> None:
    pytest.importorskip("torchtune", reason="its Llama is checked", exc_type=ImportError)
    from torchtune.models.llama3_1 import llama3_1, llama3_1_8b

    def built(model: Any) -> Any:
        for inner in model.modules():
            if hasattr(inner, "rope_init"):  # it leaves its angles out on meta
                with torch.device("cpu"):
                    inner.rope_init()
        return model

    if change is None:
        report = tfacct.check(lambda: built(llama3_1_8b()), "llama-3.1-8b", tokens=16)
        assert report.agrees, report.answer
        return
    sizes: dict[str, Any] = {"vocab_size": 128_256, "num_layers": 32, "num_heads": 32, "embed_dim": 4_096}
    ungrouped = {**sizes, "num_kv_heads": 32, "max_seq_len": 131_072, "intermediate_dim": 14_336}
    report = tfacct.check(lambda: built(llama3_1(**ungrouped)), "llama-3.1-8b", tokens=16)
    assert report.first_difference == "blocks.0.attn.k_proj: 4,096 wide in the code, 1,024 in the config"
