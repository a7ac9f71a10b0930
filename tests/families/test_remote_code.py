"""Models with remote code: published totals, and by hand. Kind: golden, refusal."""

from __future__ import annotations

import pytest

from tests.families import TINY
from tests.helpers.published import PUBLISHED
from tfacct.base.errors import ConfigError
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model


def test_jinas_encoders_by_hand() -> None:
    """jina-embeddings-v2-base-code, published as 161 million: tables of tokens and segments and a norm; per layer four
    products with biases, three matrices and a bias, two norms, and one of queries and one of keys; a pooler."""
    code = {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}
    larger = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "auto_map": code}
    of_code = load_model("mine", {**PUBLISHED["jina"], **larger, "architectures": ["JinaBertModel"]})
    layer = 4 * (768**2 + 768) + 3 * 768 * 3072 + 768 + 4 * 768 + 4 * 768
    assert of_code.parameters == (61056 + 4) * 768 + 12 * layer + 768**2 + 768
    assert round(of_code.parameters / 1e6) == 161


def test_the_last_layer_of_each_group_of_bailing_hybrid_has_full_attention() -> None:
    whole = load_model("mine", {**TINY["bailing_hybrid"], "layer_types": None, "layer_group_size": 3})
    (full,) = (group.numbers for group in whole.ledger.groups if group.kind.startswith("latent"))
    assert full == (2,)  # of layers 0 to 3


def test_jina_embeddings_v4_is_qwen2_5_vl_and_a_product() -> None:
    """Its class inherits that of Qwen2.5-VL-3B, whose language model has 3,085,938,688 of 3,754,622,976 parameters."""
    plain = {
        "hidden_size": 2048, "intermediate_size": 11008, "max_position_embeddings": 128000, "model_type": "qwen2_5_vl",
        "num_attention_heads": 16, "num_hidden_layers": 36, "num_key_value_heads": 2, "tie_word_embeddings": True,
        "vocab_size": 151936, "vision_config": {"hidden_size": 1280, "model_type": "qwen2_5_vl"},
    }  # fmt: skip
    own = {"matryoshka_dims": [128, 256], "multi_vector_projector_dim": 128, "task_names": ["retrieval"]}
    ours = load_model("mine", {**plain, **own, "architectures": ["JinaEmbeddingsV4Model"]})
    assert (ours.unknown, ours.left_out) == ((), ("vision_config", "multi_vector_projector"))
    assert ours.ledger.parameters() == load_model("mine", plain).ledger.parameters()
    assert ours.parameters == 3_085_938_688
    with pytest.raises(ConfigError, match="is not a class of qwen2"):
        load_model("mine", {**plain, "architectures": ["JinaEmbeddingsV5Model"]})


def test_nv_embed_by_hand() -> None:
    """Published as 7.85 billion: Mistral-7B without its head, 512 rows, four products of 4,096 × 8 · 4,096, three norms
    with shifts, and a gated network of 16,384 with biases."""
    ours = load_model("mine", PUBLISHED["nv-embed"])
    body = load_model("mine", {**TINY["mistral"], **MISTRAL, "architectures": ["MistralModel"]}).parameters
    network = 2 * (4096 + 1) * 16384 + (16384 + 1) * 4096
    assert (ours.family, ours.unknown, ours.left_out, ours.has_cache) == ("nvembed", (), (), False)
    assert ours.parameters - body == (512 + 4 * 32768 + 3 * 2) * 4096 + network == 740_356_096
    assert ours.parameters == 7_851_016_192
    tokens = 10 * (2 * 2 * 4096 * 32768 + 2 * 2 * 512 * 32768 + 2 * 3 * 4096 * 16384)  # q, o, scores, values, network
    flops = ours.ledger.flops(Workload(10, 10).axes())
    assert sum(count for path, count in flops.items() if path.startswith("pooler")) == tokens + 4 * 512 * 4096 * 32768


MISTRAL = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
    "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
}  # fmt: skip


def test_plamo_3_by_hand() -> None:
    """Its own code's defaults: q, k and v, o, a gated network, four norms and those of queries and keys per layer;
    seven of eight layers keep 2,048 tokens."""
    ours = load_model("mine", {"model_type": "plamo3", "interleaved_sliding_window": ([2048] * 7 + [None]) * 4})
    layer = 4096 * (32 + 8) * 128 + 4096 * 4096 + 3 * 4096 * 13312 + 4 * 4096 + 2 * 128
    assert ours.parameters == 32 * layer + 4096 * 32000 + 4096 == 6_574_059_520
    assert sum(ours.ledger.states(Workload(10_000, 10_000).axes()).values()) == 2 * 4 * 128 * (28 * 2048 + 4 * 10_000)
    for fields, named in (
        ({"attention_bias": True}, "attention_bias = true"),
        ({"hidden_activation": "gelu"}, "hidden_activation ="),
        ({"interleaved_sliding_window": [2048] * 32}, "contradicts window_size and sliding_window_pattern"),
        ({"interleaved_sliding_window": [2048]}, "names 1 layers"),
        ({"rope_scaling_factor": 8.0}, "needs initial_context_length"),
    ):
        with pytest.raises(ConfigError, match=named):
            load_model("mine", {"model_type": "plamo3", **fields})
    turned = load_model("mine", {**TINY["plamo3"], "rope_scaling_factor": 8.0, "initial_context_length": 16})
    angles = [block.attention.rotary for block in turned.architecture.blocks()]
    near = (1e4, "default")
    assert [(of.base, of.scaled) for of in angles] == [near, near, (1e6, "yarn"), near]
