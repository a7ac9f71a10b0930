"""Published types that are a known family's computation under another name, and how each is read.

Transformers has no class of these names. Their fields, with what is taken where a config leaves one out, were read in
their makers' code or in public copies of it. None of that code was run: the witness is the family's class, given the
same sizes, where it has one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tfacct.families.family_config import FamilyConfig, value_of_null

HEAD = {"head_dim": "hidden_size / num_attention_heads"}
"""Heads share the hidden size, whatever head_dim says."""
EACH_ITS_KEYS = {**HEAD, "num_key_value_heads": "num_attention_heads"}
"""So they do, and no field says that there are fewer key heads."""
UNBIASED = {"attention_bias": (False, None), "mlp_bias": (False, None)}
"""Fields of Llama's class that older code of its shape does not read."""
RW_NAMES = {"n_layer": "num_hidden_layers", "n_head": "num_attention_heads", "n_head_kv": "num_kv_heads"}


class Spelled(NamedTuple):
    """How a type is read as a family."""

    family: str
    classes: Mapping[str, str] = {}
    """How its own classes begin, or their whole names → the family's."""
    names: Mapping[str, str] = {}
    """Its fields → the family's."""
    instead: Mapping[str, str] = {}
    """Its fields that take the place of another where they are not null → that other."""
    absent: Mapping[str, Any] = {}
    """What its code takes for fields that a config leaves out, by the family's names."""
    wide: int | str | None = None
    """How many times as wide as the model a network is of which no width is said, or null; or the field that says."""
    halved: frozenset[str] = frozenset()
    """Sizes, by the family's names, that its fields give twice."""
    needs: tuple[str, ...] = ()
    """Fields of which that was not seen, or is not understood: a config has to say them."""
    only: Mapping[str, tuple[Any, ...]] = {}
    """Fields that its code reads otherwise than the family, or not at all → the values that are understood."""
    silent: frozenset[str] = frozenset()
    """Fields of its own that change no count."""
    follows: Mapping[str, str] = {}
    """Fields that its code does not read → the fields that it takes instead."""

    def check(self, config: FamilyConfig) -> None:
        """Refuse fields that its code would not follow. Raises ConfigError."""
        sizes = {name: getattr(config, name) for name in type(config).model_fields}
        for name, instead in self.follows.items():
            if sizes[name] != value_of_null(instead, sizes):
                raise config.refused(name, sizes[name])


SIZES = (
    *("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads"),
    *("intermediate_size", "max_position_embeddings"),
)
"""Sizes that a config has to say where the family has defaults for all of them."""
DEEPSEEK_MOE = Spelled(
    "glm4_moe",
    {"Deepseek": "Glm4Moe"},
    absent={"use_qk_norm": False, "partial_rotary_factor": 1.0},
    needs=(*SIZES, *("moe_intermediate_size", "num_experts_per_tok", "first_k_dense_replace")),
    only={
        **{"attention_bias": (False, None), "use_qk_norm": (False, None), "moe_layer_freq": (1,)},
        "scoring_func": ("softmax",),
    },
    silent=frozenset({"aux_loss_alpha", "seq_aux", "ep_size", "topk_method"}),
    follows=HEAD,
)
"""DeepSeekMoE's shape: Llama's attention, dense layers first, then experts beside a shared network."""
OLMO_NAMES: Mapping[str, str] = {
    **{"d_model": "hidden_size", "n_layers": "num_hidden_layers", "n_heads": "num_attention_heads"},
    **{"n_kv_heads": "num_key_value_heads", "mlp_hidden_size": "intermediate_size"},
    **{"max_sequence_length": "max_position_embeddings", "weight_tying": "tie_word_embeddings"},
}
OLMO_SILENT = frozenset(
    """
    alibi_bias_max attention_layer_norm_with_affine block_group_size flash_attention init_cutoff_factor init_device
    init_fn precision rope_full_precision scale_logits mlp_ratio
    """.split()
)
"""OLMo's own names, which LLaDA's code took over."""
LLADA_ONLY: Mapping[str, tuple[Any, ...]] = {
    "block_type": ("llama",),
    "activation_type": ("silu",),
    "layer_norm_type": ("rms",),
    "layer_norm_with_affine": (True,),
    "bias_for_layer_norm": (False, None),
    "include_bias": (False,),
    "include_qkv_bias": (False, None),
    "attention_layer_norm": (False,),
    "input_emb_norm": (False,),
    "multi_query_attention": (None,),
    "rope": (True,),
    "alibi": (False,),
    "use_scheduler_head": (False,),
    **UNBIASED,
}
GROUPED = Spelled(
    "llama",
    needs=("intermediate_size", "num_key_value_heads", "max_position_embeddings"),
    only=UNBIASED,
    follows=HEAD,
)
"""Llama's shape with grouped heads; what it takes for absent sizes was not seen."""
IN_BLOCKS = {"in_blocks": True}
OF_BLOCKS = frozenset({"block_size", "block_length", "mask_token_id", "fuse_cross_entropy"})
"""Fields of models that make text in blocks, whose tokens see one another: they change no count."""
SPELLED: Mapping[str, Spelled] = {
    "new": Spelled("gte"),
    "gpt-sw3": Spelled("gpt2"),
    "deepseek_ref": Spelled("deepseek_v4"),
    "Yi": Spelled(
        "llama",
        {"Yi": "Llama"},
        absent={
            **{"vocab_size": 64000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
            **{"num_attention_heads": 32, "num_key_value_heads": 4, "max_position_embeddings": 4096},
        },
        only=UNBIASED,
        follows=HEAD,
    ),
    "aquila": GROUPED._replace(classes={"Aquila": "Llama"}),
    "xverse": Spelled(
        "llama",
        {"Xverse": "Llama"},
        absent={
            **{"vocab_size": 100278, "hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40},
            **{"num_attention_heads": 40, "max_position_embeddings": 8192},
        },
        only=UNBIASED,
        silent=frozenset({"quantization_bit", "initializer_weight"}),
        follows=EACH_ITS_KEYS,
    ),
    "skywork": GROUPED._replace(classes={"Skywork": "Llama"}),
    "internlm": Spelled(
        "llama",
        {"InternLM": "Llama"},
        names={"bias": "attention_bias"},
        absent={
            **{"vocab_size": 103168, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32},
            **{"num_attention_heads": 32, "max_position_embeddings": 2048, "attention_bias": True},
        },
        only={"mlp_bias": (False, None)},
        silent=frozenset({"rotary"}),
        follows=EACH_ITS_KEYS,
    ),
    "PanguEmbedded": Spelled(
        "llama",
        {"PanguEmbedded": "Llama"},
        names={"bias": "attention_bias"},
        absent={
            **{"vocab_size": 153376, "hidden_size": 4096, "intermediate_size": 12800, "num_hidden_layers": 34},
            **{"num_attention_heads": 32, "num_key_value_heads": 8, "max_position_embeddings": 32768},
            "attention_bias": True,
        },
        only={"mlp_bias": (False, None)},
    ),
    "RefinedWebModel": Spelled(
        "falcon",
        {"RW": "Falcon"},
        names=RW_NAMES,
        absent={"multi_query": False, "parallel_attn": False, "alibi": False, "bias": False},
        only={"new_decoder_architecture": (False, None), "num_ln_in_parallel_attn": (None,)},
    ),
    "RefinedWeb": Spelled(
        "falcon",
        {"RW": "Falcon"},
        names=RW_NAMES,
        absent={"new_decoder_architecture": True},
        needs=("num_kv_heads", "parallel_attn"),
        only={"new_decoder_architecture": (True,), "num_ln_in_parallel_attn": (2, None)},
    ),
    "stablelm_epoch": Spelled("stablelm", silent=frozenset({"rotary_scaling_factor"})),
    "btlm": Spelled("jais", {"BTLM": "JAIS"}, needs=("n_inner", "position_embedding_type", "activation_function")),
    "phi-msft": Spelled(
        "phi",
        names={
            **{"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"},
            **{"n_inner": "intermediate_size", "n_head_kv": "num_key_value_heads", "attn_pdrop": "attention_dropout"},
            **{"n_positions": "max_position_embeddings", "layer_norm_epsilon": "layer_norm_eps"},
            "activation_function": "hidden_act",
        },
        needs=("vocab_size", "n_embd", "n_layer", "n_head", "n_positions"),
        only={"qk_layernorm": (False, None)},
        silent=frozenset({"rotary_dim", "flash_attn", "flash_rotary", "fused_dense"}),
        wide=4,
    ),
    "deepseek": DEEPSEEK_MOE._replace(needs=(*DEEPSEEK_MOE.needs, "n_routed_experts", "n_shared_experts")),
    "chatglm": Spelled(
        "glm",
        {"ChatGLMModel": "GlmForCausalLM", "ChatGLMForConditionalGeneration": "GlmForCausalLM"},
        names={
            **{"num_layers": "num_hidden_layers", "ffn_hidden_size": "intermediate_size", "kv_channels": "head_dim"},
            **{"multi_query_group_num": "num_key_value_heads", "add_qkv_bias": "attention_bias"},
            **{"seq_length": "max_position_embeddings", "layernorm_epsilon": "rms_norm_eps"},
        },
        instead={"padded_vocab_size": "vocab_size"},
        absent={"attention_bias": False, "pad_token_id": None},
        needs=(
            *("padded_vocab_size", "num_layers", "hidden_size", "ffn_hidden_size", "kv_channels", "seq_length"),
            *("num_attention_heads", "multi_query_attention", "multi_query_group_num"),
        ),
        only={
            **{"multi_query_attention": (True,), "add_bias_linear": (False,), "rmsnorm": (True,)},
            **{"post_layer_norm": (True,), "apply_residual_connection_post_layernorm": (False,)},
            "position_encoding_2d": (False, None),  # ChatGLM-6B, the first
            **{"pre_seq_len": (None,), "tie_word_embeddings": (False, None), "partial_rotary_factor": (0.5,)},
        },
        silent=frozenset(
            """
            apply_query_key_layer_scaling attention_softmax_in_fp32 bias_dropout_fusion fp32_residual_connection
            original_rope prefix_projection quantization_bit rope_ratio hidden_dropout classifier_dropout
            """.split()
        ),
    ),
    "orion": Spelled(
        "stablelm",
        {"Orion": "StableLm"},
        names={"rms_norm_eps": "layer_norm_eps"},
        absent={"partial_rotary_factor": 1.0},
        needs=SIZES,
        only={
            **{"attention_bias": (False, None), "use_qkv_bias": (False, None), "qk_layernorm": (False, None)},
            "use_parallel_residual": (False, None),
        },
    ),
    "Dream": Spelled(
        "qwen2",
        {"DreamModel": "Qwen2ForCausalLM", "DreamForCausalLM": "Qwen2ForCausalLM"},
        absent={"is_causal": False},
        needs=SIZES,
        only={"is_causal": (False, None)},
        silent=frozenset({"mask_token_id"}),
        follows=HEAD,
    ),
    **{
        "sdar": Spelled("qwen3", {"SDAR": "Qwen3"}, absent=IN_BLOCKS, needs=(*SIZES, "head_dim"), silent=OF_BLOCKS),
        "sdar_moe": Spelled(
            "qwen3_moe",
            {"SDARMoe": "Qwen3Moe"},
            absent=IN_BLOCKS,
            needs=(*SIZES, "head_dim", "moe_intermediate_size", "num_experts", "num_experts_per_tok"),
            silent=OF_BLOCKS,
        ),
        "llada2_moe": Spelled(
            "bailing_moe",
            {"LLaDA2MoeModelLM": "BailingMoeV2ForCausalLM"},
            absent={**IN_BLOCKS, "num_shared_experts": 0, "partial_rotary_factor": 0.5, "use_qk_norm": True},
            needs=(*SIZES, "moe_intermediate_size", "num_experts", "num_experts_per_tok", "use_bias"),
            only={"norm_head": (False, None), "use_sliding_window": (False, None), "sliding_window": (None, 4096)},
            silent=OF_BLOCKS | {"embedding_dropout", "output_dropout", "rotary_dim"},
        ),
    },
    "LLaVAOneVision1_5_text": Spelled(
        "qwen3",
        needs=(*SIZES, "head_dim"),
        only={"attention_bias": (False, None), "use_sliding_window": (False, None)},
    ),
    "llama_bidirec": Spelled(
        "eurobert",
        {"LlamaBidirectionalModel": "EuroBertModel"},
        absent={"pad_token_id": None},
        needs=SIZES,
        silent=frozenset({"pooling", "temperature"}),
    ),
    "llada": Spelled(
        "eurobert",
        {"LLaDAModelLM": "EuroBertForMaskedLM"},
        names=OLMO_NAMES,
        instead={"embedding_size": "vocab_size"},
        absent={"tie_word_embeddings": True, "max_position_embeddings": 1024, "pad_token_id": None},
        needs=(
            *("d_model", "n_layers", "n_heads", "mlp_ratio", "embedding_size"),
            *("block_type", "activation_type", "layer_norm_type", "rope"),
        ),
        wide="mlp_ratio",
        only=LLADA_ONLY,
        silent=OLMO_SILENT | {"mask_token_id"},
        follows=HEAD,
    ),
    "hf_olmo": Spelled(
        "olmo",
        {"OLMoModelForCausalLM": "OlmoForCausalLM", "OlmoModelForCausalLM": "OlmoForCausalLM", "OLMo": "Olmo"},
        names=OLMO_NAMES,
        instead={"embedding_size": "vocab_size"},
        absent={"tie_word_embeddings": True, "max_position_embeddings": 1024},
        needs=(
            *("d_model", "n_layers", "n_heads", "mlp_ratio", "embedding_size"),
            *("activation_type", "rope", "layer_norm_with_affine", "include_bias"),
        ),
        wide="mlp_ratio",
        halved=frozenset({"intermediate_size"}),
        only={
            **{"block_type": ("sequential",), "activation_type": ("swiglu",), "layer_norm_type": ("default",)},
            **{"layer_norm_with_affine": (False,), "include_bias": (False,), "bias_for_layer_norm": (False, None)},
            **{"attention_layer_norm": (False,), "multi_query_attention": (False, None), "norm_after": (False,)},
            **{"rope": (True,), "alibi": (False,), "attention_bias": (False, None)},
        },
        silent=OLMO_SILENT,
        follows=HEAD,
    ),
}
"""Types, and the families that they are read as."""
JINA = ("Model", "ForMaskedLM", "ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")
"""Classes of JinaBERT's own code, whose files call it BERT."""
LLADA_MOE_SIZES = tuple(name for name in SIZES if name != "intermediate_size")
EXPERTS_EVERYWHERE = (1, *([1] * layers for layers in range(1, 129)))
"""Ways to say that every layer has experts."""
BY_CLASS: Mapping[tuple[str, str], Spelled] = {
    ("bailing_moe", "BailingMoeForCausalLM"): DEEPSEEK_MOE._replace(
        classes={"BailingMoe": "Glm4Moe"},
        names={"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"},
        needs=(*DEEPSEEK_MOE.needs, "num_experts", "num_shared_experts", "use_bias"),
        only={**DEEPSEEK_MOE.only, "use_bias": (False,), "use_qkv_bias": (False, None)},
        silent=frozenset({"norm_head", "embedding_dropout", "output_dropout"}),
        follows={},
    ),
    **{("bert", f"JinaBert{ending}"): Spelled("jina_bert") for ending in JINA},
    ("llada", "LLaDAMoEModelLM"): Spelled(
        "qwen3_moe",
        {"LLaDAMoEModelLM": "Qwen3MoeForCausalLM"},
        names={"expert_intermediate_size": "moe_intermediate_size", "dense_intermediate_size": "intermediate_size"},
        absent={"is_causal": False, "tie_word_embeddings": False},
        needs=(*LLADA_MOE_SIZES, "expert_intermediate_size", "num_experts", "num_experts_per_tok", "qk_layernorm"),
        only={
            **{"is_causal": (False, None), "qk_layernorm": (True,), "moe_layer_freq": EXPERTS_EVERYWHERE},
            **{"shared_expert_intermediate_size": (None, 0), "partial_rotary_factor": (1.0,), "clip_qkv": (None,)},
            **{"attention_bias": (False, None), "moe_router_enable_expert_bias": (False, None)},
            "moe_router_score_function": ("softmax", None),
        },
        silent=frozenset({"mask_token_id", "router_num_group", "router_topk_group", "routed_scaling_factor"}),
        follows=HEAD,
    ),
    ("bailing_hybrid", "BailingMoeV2_5ForCausalLM"): Spelled("bailing_moe_v2_5"),
    ("minimax", "MiniMaxM2ForCausalLM"): Spelled("minimax_m2"),
    ("minimax", "MiniMaxM1ForCausalLM"): Spelled("minimax_m1"),
    ("step3p5", "Step3p5ForCausalLM"): Spelled("step3p5", {"Step3p5ForCausalLM": "Step3p7ForConditionalGeneration"}),
    ("hunyuan", "HunYuanMoEV1ForCausalLM"): Spelled("hunyuan_v1_moe"),
    ("hunyuan", "HunYuanDenseV1ForCausalLM"): Spelled("hunyuan_v1_dense"),
}
"""Types that mean several families, by their class: Ling's first generation is no `bailing_moe` of today."""
