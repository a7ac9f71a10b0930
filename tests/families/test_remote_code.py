"""Models with remote code: published totals, and by hand. Kind: golden, refusal."""

from __future__ import annotations

import pytest

from tests.families import TINY
from tests.helpers.published import PUBLISHED
from tfacct.base.errors import ConfigError
from tfacct.ledger.storage import BF16_EACH
from tfacct.ledger.workload import Workload
from tfacct.loading.model import load_model


def jina(hidden: int, layers: int, wide: int, vocab: int, normed: bool = False) -> int:
    """Tables of tokens and segments and a norm; per layer four products with biases, three matrices and a bias, two
    norms, and one of queries and one of keys in one of its codes."""
    layer = 4 * (hidden**2 + hidden) + 3 * hidden * wide + hidden + 4 * hidden + normed * 4 * hidden
    return (vocab + 4) * hidden + layers * layer


def test_jinas_encoders_by_hand() -> None:
    """jina-reranker-v1-turbo-en, published as 37.8 million; jina-embeddings-v2-base-code, as 161 million."""
    ours = load_model("mine", PUBLISHED["jina"])
    assert (ours.family, ours.unknown, ours.left_out) == ("jina_bert", (), ())
    assert ours.parameters == jina(384, 6, 1536, 61056) + 384**2 + 384 + 384 + 1 == 37_771_777
    code = {"AutoModel": "jinaai/jina-bert-v2-qk-post-norm--modeling_bert.JinaBertModel"}
    larger = {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "auto_map": code}
    of_code = load_model("mine", {**PUBLISHED["jina"], **larger, "architectures": ["JinaBertModel"]})
    assert of_code.parameters == jina(768, 12, 3072, 61056, normed=True) + 768**2 + 768
    assert round(of_code.parameters / 1e6) == 161


def test_lings_lightning_attention_by_hand() -> None:
    """Ring-mini-linear-2.0: 16 of 20 layers have five products of the hidden size, and norms of queries, of keys and of
    what is read; the others have 4 key heads. Each matrix is kept in four bytes a number."""
    ours = load_model("mine", PUBLISHED["ring-mini"])
    lightning, attention = 5 * 2048**2 + 2 * 128 + 2048, 2 * 2048**2 + 2 * 2048 * 512 + 2 * 128
    experts = 257 * 3 * 2048 * 512 + 256 * 2048
    layers = 16 * lightning + 4 * attention + 3 * 2048 * 5120 + 19 * experts + 20 * 2 * 2048
    assert (ours.family, ours.unknown) == ("bailing_moe_linear", ())
    assert ours.parameters == layers + 2 * 157184 * 2048 + 2048 == 16_423_443_456
    work = Workload(context=100, tokens=1, batch=1).axes()
    kept = ours.ledger.state_bytes(work, BF16_EACH)
    assert sum(kept.values()) == 16 * 16 * 128**2 * 4 + 4 * 2 * 100 * 512 * 2


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


def test_nomics_experts_by_hand() -> None:
    """nomic-embed-text-v2-moe: 475 million parameters are published, of which a token uses 305 million."""
    ours = load_model("mine", PUBLISHED["nomic-v2"])
    attention, norms, experts = 4 * (768**2 + 768), 4 * 768, 8 * 2 * 768 * 3072
    dense, sparse = 2 * 768 * 3072 + 3072 + 768, experts + 8 * 768 + 768
    total = (250048 + 1 + 2) * 768 + 12 * (attention + norms) + 6 * (dense + sparse)
    assert (ours.family, ours.unknown, ours.parameters) == ("nomic_bert", (), total)
    assert [round(count / 1e6) for count in (total, total - 6 * experts * 6 // 8)] == [475, 305]


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
