"""Names of tensors in published files: their names in the classes, and tensors that belong to no class.

Numbers of layers, experts and sublayers are written `*` in a name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, reduce
from typing import NamedTuple

NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")
EACH = (".experts.*.", ".norms.*.")
"""Parts of names with the number of an expert or head, if the class stacks all of them."""

OTHER_NAMES: Sequence[tuple[str, str]] = (
    (r"LayerNorm\.gamma$", "LayerNorm.weight"),  # TensorFlow names in BERT's first files
    (r"LayerNorm\.beta$", "LayerNorm.bias"),
    (r"\.block_sparse_moe\.", ".mlp."),  # Mixtral, PhiMoE, MiniMax
    (r"\.switch_mlp\.", ".experts."),  # MLX
    (r"\.experts\.\*\.w1\.", ".experts.*.gate_proj."),
    (r"\.experts\.\*\.w3\.", ".experts.*.up_proj."),
    (r"\.experts\.\*\.w2\.", ".experts.*.down_proj."),
    (r"^backbone\.embedding\.", "backbone.embeddings."),  # Mamba's first files
    (r"^lm_head\.norm\.", "lm_head.layer_norm."),
)
"""Names in files that differ from today's classes in several families: a pattern, and its replacement. What
one family's files do is in its class, as `checkpoint_conversion_mapping`."""
WRAPPERS = (
    ("language_model.model.blocks.", "model.layers."),  # as transformers 5.23 writes Kimi-K2.5's, and Qianfan-OCR's
    ("language_model.model.encoder.layers.", "model.layers."),
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.", ""),
    ("text_model.model.", "model."),
    ("model.text_model.", "model."),
    ("text_model.lm_head.", "lm_head."),
    ("thinker.", ""),
    ("base_model.model.", ""),
    ("new.", "gte."),
    ("bert.", "nomic_bert."),
)
"""Prefixes of a model inside another or an adapter, and their replacements."""
WRAPPED = re.compile(r"^(_orig_mod\.|module\.)+")
"""Name prefixes of torch.compile and of wrappers for several devices, in any order."""


TOGETHER: Mapping[str, tuple[str, ...]] = {
    "qkv_proj": ("attn.q_proj", "attn.k_proj", "attn.v_proj"),
    "gate_up_proj": ("mlp.gate_proj", "mlp.up_proj"),
}
"""Names of tensors that files may store fused and a class separately."""
APART: Mapping[str, tuple[str, ...]] = {"delta.conv": ("q_conv1d", "k_conv1d", "v_conv1d")}
"""Ledger modules that a class stores as one tensor and files as several, in this order."""


class QuantTensor(NamedTuple):
    """Scales, zero points or packed values of another tensor, whose name ends in `base`."""

    format: str
    what: str
    base: str

    @property
    def packed(self) -> bool:
        """True for packed values."""
        return self.what == PACKED


PACKED = "packed weights"
QUANT_TENSORS: Mapping[str, QuantTensor] = {
    ending: QuantTensor(format_, what, "" if ending.startswith("_") else ".weight")
    for format_, endings in {
        "compressed-tensors": {
            ".weight_packed": PACKED, ".weight_shape": "shapes", ".weight_g_idx": "group indices",
            ".weight_global_scale": "scales", ".input_global_scale": "scales of inputs",
            ".weight_zero_point": "zero points", ".input_zero_point": "zero points of inputs",
        },
        "fp8": {".weight_scale_inv": "scales", ".scale": "scales"},  # the latter are DeepSeek-V4's
        "modelopt": {".weight_scale_2": "scales"},
        "": {
            ".weight_scale": "scales", ".input_scale": "scales of inputs", ".activation_scale": "scales of inputs",
        },
        "gptq or awq": {
            ".qweight": PACKED, ".qzeros": "zero points", ".scales": "scales", ".g_idx": "group indices",
        },
        "mlx": {".biases": "zero points"},
        "mxfp4": {"_blocks": PACKED, "_scales": "scales"},
        "bitsandbytes": {
            ".weight.absmax": "scales", ".weight.quant_map": "code tables", ".weight.nested_absmax": "scales of scales",
            ".weight.nested_quant_map": "code tables", ".weight.quant_state.bitsandbytes__nf4": "states",
            ".weight.quant_state.bitsandbytes__fp4": "states", ".SCB": "scales", ".weight_format": "states",
        },
    }.items()
    for ending, what in endings.items()
}  # fmt: skip
"""Endings of names by format."""

OTHER_MODEL = "belongs to another model in the same files"
KNOWN: Sequence[tuple[str, str]] = (
    (r"(^|\.)(attn|attention|self_attention|self_attn)\.(masked_)?bias$", "buffer: mask"),
    (r"\.causal_mask$", "buffer: mask"),
    (r"(^|\.)rotary_emb(eddings)?\.(inv_freq|cos_cached|sin_cached)$", "buffer: rotary angles"),
    (r"^rope_(freqs|factors_long|factors_short)\.weight$", "buffer: rotary angles"),
    (r"(^|\.)position_ids$", "buffer: position ids"),
    (r"(^|\.)final_logits_bias$", "buffer: logits bias"),
    (r"(^|\.)(e_score_correction_bias|expert_bias|balancing_biases)$", "buffer: the router's bias"),
    (r"\.EncDecAttention\.relative_attention_bias\.weight$", "no longer read by the class"),  # T5's first files
    (r"\.tid2eid$", "buffer: each token's experts"),
    (r"\.(slope_rate|(query|key|diagonal)_decay)$", "buffer: decays"),  # MiniMax's
    (r"\.(embed_scale|version|layer_scalar|act_fn\.(beta|eps))$", "buffer"),
    (r"\.(k_scale|v_scale|q_scale|prob_scale|prob_output_scale)$", "scale of a cache"),
    (r"^(model\.)?vqmodel\.", OTHER_MODEL),  # Chameleon's image tokenizer
)
"""Tensors outside the ledger, most of which classes do not store as parameters: a pattern, and what they are."""
EMPTY = "empty tensor"  # as of 0 shared experts
IDLE = "first matrix of an expert without an MLP, never read"
AHEAD = "layer that predicts further tokens (MTP)"
MTP = r"^(model\.|language_model\.)*mtp[._]"
COMPUTED: Mapping[str, tuple[str, ...]] = {"marian": ("encoder.pos_embed.weight", "pos_embed.weight")}
"""Ledger tensors that a family's class computes at construction and does not save."""
HEADS = r"(^|\.)(lm_head|embed_out|output|decoder|generator_lm_head|embed_tokens|word_embeddings|wte|shared)\.weight$"
"""Names of copies of an embedding: of the head, or of one side of an encoder-decoder."""

GGUF: Mapping[str, str] = {
    "token_embd": "embed", "output": "lm_head", "output_norm": "final_norm", "position_embd": "pos_embed",
    "token_types": "type_embed", "token_embd_norm": "embed_norm",
    **{f"blk.*.{gguf}": f"blocks.*.{path}" for gguf, path in {
        "attn_norm": "attn_norm", "attn_q": "attn.q_proj", "attn_k": "attn.k_proj", "attn_v": "attn.v_proj",
        "attn_qkv": "attn.q_proj", "attn_output": "attn.o_proj", "attn_q_norm": "attn.q_norm",
        "attn_k_norm": "attn.k_norm", "post_attention_norm": "attn_post_norm", "attn_sinks": "attn.sinks",
        "ffn_norm": "mlp_norm", "post_ffw_norm": "mlp_post_norm",
        "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
        "ffn_gate_inp": "mlp.router", "ffn_gate_exps": "mlp.experts.gate_proj", "ffn_up_exps": "mlp.experts.up_proj",
        "ffn_down_exps": "mlp.experts.down_proj", "ffn_gate_shexp": "mlp.shared.gate_proj",
        "ffn_up_shexp": "mlp.shared.up_proj", "ffn_down_shexp": "mlp.shared.down_proj",
        "ffn_gate_inp_shexp": "mlp.shared_gate",
    }.items()},
}  # fmt: skip
"""llama.cpp's modules → the ledger's. gguf-py/gguf/constants.py, `TENSOR_NAMES`."""
GGUF_COMPARED = frozenset("llama qwen2 qwen2moe qwen3 qwen3moe gemma gemma2 gemma3 phi3 gpt2 olmo2 starcoder2".split())
"""Architectures, by their GGUF names, whose modules are all in that list."""


class Spelling(NamedTuple):
    """A name in the form of a class. `expert`: index of the star that counts experts, which the class's name does not
    have."""

    name: str
    expert: int | None = None


@cache
def spellings(
    starred: str, body: str, checkpoint_conversion_mapping: tuple[tuple[str, str], ...] = ()
) -> tuple[Spelling, ...]:
    """Names that a class may have for a tensor of a file, those that `checkpoint_conversion_mapping` makes of it first,
    because a class may have another tensor of the file's name. `body`: prefix of a whole model.

    >>> [one.name for one in spellings("h.*.mlp.c_fc.weight", "transformer.")]
    ['h.*.mlp.c_fc.weight', 'transformer.h.*.mlp.c_fc.weight']
    >>> spellings("model.layers.*.block_sparse_moe.experts.*.w1.weight", "model.")[-1]
    Spelling(name='layers.*.mlp.experts.gate_proj.weight', expert=1)
    """
    names = [starred, WRAPPED.sub("", starred)]
    for beginning, instead in WRAPPERS:
        names += [instead + name.removeprefix(beginning) for name in names if name.startswith(beginning)]
    converted = [
        reduce(lambda name, each: re.sub(each[0], each[1], name), checkpoint_conversion_mapping, name) for name in names
    ]
    names = [*converted, *names]
    for pattern, instead in OTHER_NAMES:
        names += [re.sub(pattern, instead, name) for name in names if re.search(pattern, name)]
    if body:
        names += [body + name for name in names] + [name.removeprefix(body) for name in names if name.startswith(body)]
    found: dict[Spelling, None] = {}
    for name in dict.fromkeys(names):
        found[Spelling(name)] = None
        for each in EACH:
            before, expert, _ = name.partition(each)
            if expert:
                found[Spelling(name.replace(each, each.removesuffix("*.")), before.count("*"))] = None
    return tuple(found)


@cache
def quant_tensor(starred: str) -> tuple[str, QuantTensor] | None:
    """The tensor that a quantization tensor belongs to, and its kind; None if its ending is not in QUANT_TENSORS."""
    ending = max((ending for ending in QUANT_TENSORS if starred.endswith(ending)), key=len, default=None)
    return (
        None if ending is None else (starred.removesuffix(ending) + QUANT_TENSORS[ending].base, QUANT_TENSORS[ending])
    )


@cache
def known(starred: str) -> str | None:
    """What a tensor outside the ledger is; None if it is not known."""
    return next((what for pattern, what in KNOWN if re.search(pattern, starred)), None)
