"""How transformers classes run their parts, where a class differs from what most do."""

from __future__ import annotations

from typing import Literal, NamedTuple


class Mode(NamedTuple):
    """What a recipe and a config decide of how a class runs: the attention kernel, dtypes, adapters, dropouts.

    `fp32`: everything is in fp32. `autocast`: weights and residual stream are in fp32, matmuls read 16-bit copies.
    `dropouts`: places where the config drops elements: embedding, residual, mlp, mlp_product, attention.
    """

    sdpa: bool = True
    fp32: bool = False
    autocast: bool = False
    adapters: bool = False
    dropouts: frozenset[str] = frozenset()


class Traits(NamedTuple):
    """How a class runs its parts.

    `narrow_softmax`: eager softmax runs in the dtype of the step. `fp32_scores`: queries and keys are cast to fp32 for
    their product. `fp32_norm_weights`: weights of norms scale in fp32. `python_layer_norm`: LayerNorms without a bias
    are written in Python. `norm_reads_twice`: RMSNorms scale their input, not its fp32 copy. `always_masked`: sdpa
    always gets a mask. `fused_qkv`: queries, keys and values are one matmul; values are a view of it, or a copy.
    `fused_gate_up`: gate and up are one matmul. `rejoins_heads`: rotated and other dimensions of heads are
    concatenated, so that heads lie one behind the other. `fp32_router`: the router reads an fp32 copy.
    `clamped_experts`: gate and up of experts are bounded. `dense_experts`: every expert runs on every token.
    `compute_dtype_loss`: logits are not cast to fp32. `biased_logits`: a buffer is added to the logits.
    `drops_in_attention`: the dropout after attention is inside its module, and recomputed with it.
    `mask_buffers`: how many masks of all positions the class stores: one, or one of each layer and one more.
    """

    narrow_softmax: bool = False
    fp32_scores: bool = False
    fp32_norm_weights: bool = False
    python_layer_norm: bool = False
    norm_reads_twice: bool = False
    always_masked: bool = False
    fused_qkv: Literal["", "views", "copies"] = ""
    fused_gate_up: bool = False
    rejoins_heads: bool = False
    fp32_router: bool = False
    clamped_experts: bool = False
    dense_experts: bool = False
    compute_dtype_loss: bool = False
    biased_logits: bool = False
    drops_in_attention: bool = False
    mask_buffers: Literal["", "one", "per layer"] = ""
