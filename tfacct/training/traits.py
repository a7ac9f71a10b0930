"""How transformers classes run their parts (casts, fusions, copies), for classes that differ from most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

from tfacct.base.errors import UsageError
from tfacct.base.pydantic_messages import format_value
from tfacct.loading.model import LoadedModel

CLASSIFIER, EMBEDDING = "classifier", "embedding"
"""Places of dropouts: before the classifier, and after the embeddings."""


class Mode(NamedTuple):
    """Settings of a class that a recipe and a config determine: attention kernel, dtypes, dropouts.

    `fp32`: everything is in fp32. `autocast`: weights and residual stream are in fp32, matmuls read 16-bit copies.
    `packed`: a row has several sequences, separated by a mask. `recomputed`: layers are recomputed. `dropouts`: places
    with dropout: embedding, residual (after every sublayer), attn or mlp (after that sublayer), mlp_product, attention,
    final (after the final norm), classifier.
    """

    sdpa: bool = True
    fp32: bool = False
    autocast: bool = False
    dropouts: frozenset[str] = frozenset()
    packed: bool = False
    recomputed: bool = False


class Traits(NamedTuple):
    """How a class runs its parts.

    `narrow_softmax`: eager softmax runs in the dtype of the step. `casts_softmax`: its fp32 result under autocast is
    cast before its dropout. `scores_stay`: scores stay alive next to masked ones, and attention weights until the next
    layer returns its own. `fp32_scores`: queries and keys are cast to fp32 for their matmul. `fp32_norm_weights`:
    weights of norms scale in fp32, as they are stored or as fp32 copies. `python_layer_norm`: LayerNorms without a bias
    are written in Python. `norm_reads_twice`: RMSNorms scale their input, not its fp32 copy. `always_masked`: sdpa
    always gets a mask. `batched_bias`: biases that all layers share are copied for each sequence, and attention returns
    no weights. `fused_qkv`: queries, keys and values are one matmul; values are a view of its output, a copy, or a copy
    if query heads share keys. `broadcasts_key_head`: a single key head is not repeated. `fused_gate_up`: gate and up
    are one matmul. `written_gelu`: the backward pass of GELU is written in Python. `rejoins_heads`: rotary and other
    dimensions of heads are concatenated, so that heads are contiguous. `fp32_rotary`: cos and sin are in fp32.
    `rotary_per_layer`: each layer computes its own cos and sin. `fp32_router`: the router reads an fp32 copy.
    `narrow_shares`: routing weights are in the dtype of the step. `clamped_experts`: gate and up of experts are
    clamped. `dense_experts`: every expert runs on every token. `fp32_loss`: logits are cast to fp32, as next-token
    logits always are. `biased_logits`: a buffer is added to the logits. `embed_scale_buffer`: the embedding scale is a
    buffer. `id_buffers`: number of buffers with an id per position: position, and segment. `mask_buffers`: number of
    stored masks over all positions: one, or one per layer and one more.
    """

    narrow_softmax: bool = False
    casts_softmax: bool = False
    scores_stay: bool = False
    fp32_scores: bool = False
    fp32_norm_weights: Literal["", "parameters", "copies"] = ""
    python_layer_norm: bool = False
    norm_reads_twice: bool = False
    always_masked: bool = False
    batched_bias: bool = False
    fused_qkv: Literal["", "views", "copies", "copies if grouped"] = ""
    broadcasts_key_head: bool = False
    fused_gate_up: bool = False
    written_gelu: bool = False
    rejoins_heads: bool = False
    fp32_rotary: bool = False
    rotary_per_layer: bool = False
    fp32_router: bool = False
    narrow_shares: bool = False
    clamped_experts: bool = False
    dense_experts: bool = False
    fp32_loss: bool = False
    biased_logits: bool = False
    embed_scale_buffer: bool = False
    id_buffers: int = 0
    mask_buffers: Literal["", "one", "per layer"] = ""

    def rotary_role(self, mode: Mode) -> Literal["fp32", "compute"]:
        """Role of cos and sin."""
        return "fp32" if self.fp32_rotary or mode.autocast else "compute"


TRAITS: Mapping[str, Traits] = {
    family: traits
    for families, traits in (
        ("afmoe", Traits(fp32_norm_weights="parameters")),
        (
            "albert bert camembert ernie roberta roberta-prelayernorm roc_bert xlm-roberta xlm-roberta-xl",
            Traits(narrow_softmax=True, id_buffers=2),
        ),
        (
            "altclip_text_model big_bird chinese_clip_text_model data2vec-text dpr electra gte jina_bert m2m_100 "
            "megatron-bert mvp nomic_bert rembert roformer",
            Traits(narrow_softmax=True),
        ),
        (
            "axk1 deepseek_v2 deepseek_v3 dots1 exaone_moe glm4_moe_lite hunyuan_v1_moe hy_v3 kimi_k2 kolibri1 "
            "solar_open",
            Traits(fp32_router=True),
        ),
        ("bailing_moe glm4_moe", Traits(rejoins_heads=True, fp32_router=True)),
        (
            "bart blenderbot blenderbot-small marian mbart pegasus plbart",
            Traits(narrow_softmax=True, biased_logits=True),
        ),
        ("bert-generation", Traits(narrow_softmax=True, fp32_loss=True)),
        ("bloom", Traits(scores_stay=True, fused_qkv="views", written_gelu=True)),
        ("codegen", Traits(fp32_scores=True, fused_qkv="copies")),
        ("cohere cohere2 cohere2_moe", Traits(python_layer_norm=True)),
        ("distilbert layoutlm", Traits(narrow_softmax=True, id_buffers=1)),
        ("ernie4_5", Traits(fp32_rotary=True, rotary_per_layer=True)),
        ("ernie4_5_moe", Traits(fp32_router=True, narrow_shares=True)),
        ("eurobert", Traits(fp32_loss=True)),
        (
            "falcon",
            Traits(
                narrow_softmax=True,
                scores_stay=True,
                always_masked=True,
                fused_qkv="copies if grouped",
                broadcasts_key_head=True,
            ),
        ),
        ("flex_olmo", Traits(fp32_norm_weights="parameters", fp32_rotary=True, narrow_shares=True)),
        ("gemma gemma2 gemma3_text vaultgemma", Traits(embed_scale_buffer=True)),
        ("glm glm4", Traits(fused_gate_up=True, rejoins_heads=True, rotary_per_layer=True)),
        ("gpt2", Traits(narrow_softmax=True, casts_softmax=True, fused_qkv="views")),
        ("gpt_bigcode", Traits(fused_qkv="views", mask_buffers="one")),
        ("gpt_neo", Traits(fp32_scores=True, mask_buffers="per layer")),
        ("gpt_neox persimmon", Traits(fused_qkv="views", rejoins_heads=True)),
        (
            "gpt_oss",
            Traits(narrow_softmax=True, fp32_norm_weights="parameters", narrow_shares=True, clamped_experts=True),
        ),
        ("gptj", Traits(fp32_scores=True)),
        (
            "granitemoe granitemoeshared lfm2_moe mellum mistral4 olmoe phimoe qwen2_moe qwen3_moe",
            Traits(narrow_shares=True),
        ),
        ("helium", Traits(fp32_norm_weights="copies", rotary_per_layer=True)),
        ("llama4_text", Traits(narrow_softmax=True, dense_experts=True)),
        ("minimax_m2 nemotron phi qwen3_5_text stablelm", Traits(rejoins_heads=True)),
        ("modernbert", Traits(fused_qkv="views", fused_gate_up=True, fp32_loss=True)),
        ("modernbert-decoder", Traits(fused_gate_up=True)),
        ("mpnet", Traits(narrow_softmax=True, batched_bias=True, id_buffers=1)),
        ("mpt", Traits(fused_qkv="views")),
        ("mt5 t5 umt5", Traits(narrow_softmax=True, norm_reads_twice=True)),
        ("olmo", Traits(fp32_rotary=True)),
        ("olmo2 olmo3", Traits(fp32_norm_weights="parameters", fp32_rotary=True)),
        ("phi3", Traits(fused_qkv="views", fused_gate_up=True, rejoins_heads=True)),
        ("qwen3_5_moe_text qwen3_next", Traits(rejoins_heads=True, narrow_shares=True)),
    )
    for family in families.split()
}
"""Traits of the classes of families that differ from the default."""

UNVERIFIED_FIELDS: Mapping[str, str] = {
    "activation_function": "nomic_bert",
    "alibi": "falcon",
    "apply_residual_connection_post_layernorm": "bloom",
    "attention_dropout": "modernbert",
    "attn_config.attn_pdrop": "mpt",
    "attn_logit_softcapping": "gemma3_text",
    "bias": "falcon",
    "chunk_size_feed_forward": """
        albert altclip_text_model bert big_bird camembert chinese_clip_text_model data2vec-text distilbert
        dpr electra ernie jina_bert layoutlm longformer megatron-bert rembert roberta roberta-prelayernorm
        roc_bert roformer xlm-roberta xlm-roberta-xl
    """,
    "classifier_dropout": "modernbert",
    "decoder_layerdrop": "bart blenderbot blenderbot-small m2m_100 marian mbart mvp pegasus plbart",
    "embedding_dropout": "modernbert",
    "encoder_layerdrop": "bart blenderbot blenderbot-small m2m_100 marian mbart mvp pegasus plbart",
    "in_blocks": "mimo qwen2 qwen3 qwen3_moe",
    "input_jitter_noise": "phimoe",
    "layerdrop": "opt",
    "mlp_dropout": "modernbert",
    "mlp_fc1_bias": "nomic_bert",
    "mlp_fc2_bias": "nomic_bert",
    "num_experts": "nomic_bert",
    "output_router_logits": """
        exaone_moe flex_olmo granitemoe granitemoe_swa granitemoeshared grok-1 hy_v3 mellum minimax_m2
        mixtral olmoe phimoe qwen2_moe qwen3_moe solar_open
    """,
    "qk_layernorm": "stablelm",
    "qkv_proj_bias": "nomic_bert",
    "reorder_and_upcast_attn": "gpt2 jais",
    "router_jitter_noise": "minimax_m2 mixtral",
    "slow_but_exact": "bloom",
    "sparse_prediction": "modernbert",
    "use_bidirectional_attention": "gemma gemma2 gemma3_text",
    "use_qk_norm": "cohere",
}
"""Fields that change a training step in ways that were not measured → the families whose class reads them."""
UNVERIFIED_DEFAULTS = {"m2m_100": 0.05}
"""Defaults of those fields if the class turns them on."""
OUTPUT_PROJECTION_FIRST = frozenset(["phi3"])
"""Families whose class declares attention's output projection first, so that the optimizer gets it first."""


def unverified_fields(model: LoadedModel) -> list[str]:
    """Fields of a model that change its training step in ways that were not measured, in order."""
    return sorted(field for field, families in UNVERIFIED_FIELDS.items() if model.family in families.split())


def traits_of(model: LoadedModel) -> Traits:
    """How the class of a model runs its parts."""
    return TRAITS.get(model.family, Traits())


def dropouts_of(model: LoadedModel) -> frozenset[str]:
    """Places with dropout. Raises UsageError for a rate that is not between 0 and 1."""
    found = model.config.dropout_rates(model.raw)
    if found.get(CLASSIFIER, 0) is None:  # as everywhere
        found[CLASSIFIER] = found[EMBEDDING]
    for place, share in found.items():
        if not isinstance(share, (int, float)) or isinstance(share, bool) or not 0 <= share < 1:
            field = model.config.dropouts[place][0]
            raise UsageError(f"{model.name}: {field} must be between 0 and 1, not {format_value(share)}")
    return frozenset(place for place, share in found.items() if share)
