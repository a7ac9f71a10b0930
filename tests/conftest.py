"""What several tests share: tiny models with every size its own, and the command line in this process."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from tfacct.lines import Matmul
from tfacct.notation import Axes
from tfacct.subject import Subject, subject
from tfacct.workload import Workload

# Nothing in this process, or begun by it, asks the real hub: huggingface_hub reads these when it is imported.
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_ENDPOINT": "http://127.0.0.1:9"}

# Every size distinct, heads · head_dim ≠ hidden where the family allows it, G > 1: a swapped letter changes a number.
TINY = {
    "gpt2": {
        "model_type": "gpt2", "vocab_size": 59, "n_embd": 42, "n_layer": 2, "n_head": 6, "n_positions": 37,
        "n_inner": 67,
    },
    "llama": {
        "model_type": "llama", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 53,
        "attention_bias": True, "mlp_bias": True,
    },
    "qwen2": {
        "model_type": "qwen2", "vocab_size": 73, "hidden_size": 40, "num_hidden_layers": 2, "num_attention_heads": 10,
        "num_key_value_heads": 5, "head_dim": 6, "intermediate_size": 79, "max_position_embeddings": 47,
        "tie_word_embeddings": True,
    },
    "qwen3": {
        "model_type": "qwen3", "vocab_size": 79, "hidden_size": 36, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 3, "head_dim": 14, "intermediate_size": 97, "max_position_embeddings": 43,
        "attention_bias": True,
    },
    "gemma": {
        "model_type": "gemma", "vocab_size": 67, "hidden_size": 30, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 101, "max_position_embeddings": 51,
        "attention_bias": True, "hidden_act": "gelu",
    },
    "mistral": {
        "model_type": "mistral", "vocab_size": 101, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 8,
        "num_key_value_heads": 2, "head_dim": 6, "intermediate_size": 107, "max_position_embeddings": 59,
        "sliding_window": None,
    },
    "cs336": {
        "model_type": "cs336", "vocab_size": 83, "context_length": 41, "num_layers": 2, "d_model": 48, "num_heads": 8,
        "d_ff": 89,
    },
    "mixtral": {
        "model_type": "mixtral", "vocab_size": 103, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37, "max_position_embeddings": 59,
        "num_local_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
    },
    "qwen2_moe": {
        "model_type": "qwen2_moe", "vocab_size": 107, "hidden_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 53, "moe_intermediate_size": 37, "shared_expert_intermediate_size": 29,
        "num_experts": 7, "num_experts_per_tok": 4, "decoder_sparse_step": 2, "mlp_only_layers": [3],
        "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 3,
    },
    "qwen3_moe": {
        "model_type": "qwen3_moe", "vocab_size": 109, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 61, "moe_intermediate_size": 37, "num_experts": 7, "num_experts_per_tok": 4,
        "mlp_only_layers": [1], "attention_bias": True,
    },
    "gemma2": {
        "model_type": "gemma2", "vocab_size": 113, "hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 57,
        "sliding_window": 5, "query_pre_attn_scalar": 12,
    },
    "gemma3_text": {
        "model_type": "gemma3_text", "vocab_size": 127, "hidden_size": 48, "num_hidden_layers": 4,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71,
        "max_position_embeddings": 63, "sliding_window": 5, "sliding_window_pattern": 3, "query_pre_attn_scalar": 14,
    },
    "phi": {
        "model_type": "phi", "vocab_size": 131, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "intermediate_size": 71, "max_position_embeddings": 49, "qk_layernorm": True,
    },
    "phi3": {
        "model_type": "phi3", "vocab_size": 137, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 55,
        "sliding_window": 5, "partial_rotary_factor": 0.8, "pad_token_id": 0,
    },
    "deepseek_v2": {
        "model_type": "deepseek_v2", "vocab_size": 139, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 65, "moe_intermediate_size": 37,
        "n_routed_experts": 7, "n_shared_experts": 2, "num_experts_per_tok": 3, "first_k_dense_replace": 1,
        "q_lora_rank": None, "kv_lora_rank": 14, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 10,
        "n_group": 1, "topk_group": 1, "attention_bias": True, "mlp_bias": True,
    },
    "deepseek_v3": {
        "model_type": "deepseek_v3", "vocab_size": 149, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 6, "intermediate_size": 71, "max_position_embeddings": 67,
        "moe_intermediate_size": 37, "n_routed_experts": 15, "n_shared_experts": 2, "num_experts_per_tok": 3,
        "first_k_dense_replace": 1, "q_lora_rank": 22, "kv_lora_rank": 14, "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4, "v_head_dim": 10, "n_group": 3, "topk_group": 2,
    },
    "gpt_oss": {
        "model_type": "gpt_oss", "vocab_size": 151, "hidden_size": 48, "num_hidden_layers": 3,
        "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 37,
        "max_position_embeddings": 69, "num_local_experts": 7, "num_experts_per_tok": 4, "sliding_window": 5,
    },
    "gpt_neox": {
        "model_type": "gpt_neox", "vocab_size": 157, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "intermediate_size": 71, "max_position_embeddings": 45, "rotary_pct": 0.4,
    },
    "falcon": {
        "model_type": "falcon", "vocab_size": 163, "hidden_size": 60, "num_hidden_layers": 2,
        "num_attention_heads": 6, "num_kv_heads": 2, "new_decoder_architecture": True, "ffn_hidden_size": 71,
        "max_position_embeddings": 39,
    },
    "opt": {
        "model_type": "opt", "vocab_size": 167, "hidden_size": 60, "num_hidden_layers": 2, "num_attention_heads": 6,
        "ffn_dim": 71, "max_position_embeddings": 59,
    },
    "bloom": {
        "model_type": "bloom", "vocab_size": 173, "hidden_size": 60, "n_layer": 2, "n_head": 6, "seq_length": 35,
    },
    "olmo2": {
        "model_type": "olmo2", "vocab_size": 179, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6,
        "num_key_value_heads": 2, "head_dim": 10, "intermediate_size": 71, "max_position_embeddings": 33,
        "attention_bias": True,
    },
    "mamba": {
        "model_type": "mamba", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "state_size": 5,
        "intermediate_size": 71, "conv_kernel": 6, "time_step_rank": 8, "use_bias": True,
    },
    "bert": {
        "model_type": "bert", "vocab_size": 181, "hidden_size": 42, "num_hidden_layers": 2, "num_attention_heads": 6,
        "intermediate_size": 71, "max_position_embeddings": 37, "type_vocab_size": 3,
    },
    "t5": {
        "model_type": "t5", "vocab_size": 191, "d_model": 48, "d_kv": 10, "d_ff": 71, "num_layers": 2,
        "num_decoder_layers": 3, "num_heads": 6, "n_positions": 33, "relative_attention_num_buckets": 15,
        "feed_forward_proj": "gated-gelu",
    },
    "bart": {
        "model_type": "bart", "vocab_size": 193, "d_model": 60, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 6, "decoder_attention_heads": 10, "encoder_ffn_dim": 71, "decoder_ffn_dim": 67,
        "max_position_embeddings": 37,
    },
    "marian": {
        "model_type": "marian", "vocab_size": 197, "d_model": 66, "encoder_layers": 2, "decoder_layers": 3,
        "encoder_attention_heads": 6, "decoder_attention_heads": 22, "encoder_ffn_dim": 71, "decoder_ffn_dim": 73,
        "max_position_embeddings": 41, "pad_token_id": 0, "decoder_start_token_id": 0, "scale_embedding": True,
    },
    "own": {
        "model": {"vocab": 227, "hidden": 48, "context": 29, "source_context": 31, "positions": "sines"},
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "bias": True, "scores": "distance"},
        "feed_forward": {"width": 71, "bias": True, "norm": "layer"},
        "norm": {"kind": "layer", "order": "post", "shared": True},
        "encoder": {"layers": 3, "feed_forward": {"called": False}},
        "decoder": {"layers": 2},
    },
}  # fmt: skip

# Other shapes that the same families have.
VARIANTS = {
    "mistral, windowed": {**TINY["mistral"], "sliding_window": 5},
    "qwen2, windowed": {
        **TINY["qwen2"], "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7,
        "max_window_layers": 1,
    },
    "qwen3, windows listed": {
        **TINY["qwen3"], "num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
    "falcon, one key head": {
        **{name: value for name, value in TINY["falcon"].items() if name != "num_kv_heads"},
        "new_decoder_architecture": False,
    },
    "falcon, ALiBi": {
        **{name: value for name, value in TINY["falcon"].items() if name != "num_kv_heads"},
        "new_decoder_architecture": False, "multi_query": False, "parallel_attn": False, "bias": True, "alibi": True,
    },
    "opt, post-norm": {**TINY["opt"], "word_embed_proj_dim": 22, "do_layer_norm_before": False},
    "gpt_neox, sequential": {**TINY["gpt_neox"], "use_parallel_residual": False, "attention_bias": False},
    "deepseek_v2, absorbed": {**TINY["deepseek_v2"], "q_lora_rank": 22, "latent_attention": "absorbed"},
    "deepseek_v2, unpacked": {**TINY["deepseek_v2"], "latent_attention": "unpacked"},
    "deepseek_v3, absorbed": {**TINY["deepseek_v3"], "latent_attention": "absorbed"},
    "deepseek_v3, unpacked": {**TINY["deepseek_v3"], "latent_attention": "unpacked"},
    "t5, untied": {**TINY["t5"], "tie_word_embeddings": False, "feed_forward_proj": "relu"},
    "marian, a table on each side": {
        **TINY["marian"], "share_encoder_decoder_embeddings": False, "decoder_vocab_size": 199,
    },
    "own, windowed": {
        "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "rotary", "tied": True},
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "window": 5, "qk_norm": "layer"},
        "feed_forward": {"width": 71, "gated": True, "norm": "rms"},
        "norm": {"kind": "rms", "order": "parallel"},
        "decoder": {"layers": 3},
    },
    "own, parallel and idle": {
        "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "alibi", "head_bias": True},
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "out_bias": True},
        "feed_forward": {"width": 71, "called": False},
        "norm": {"kind": "layer", "order": "parallel", "shared": True},
        "decoder": {"layers": 2},
    },
    "own, encoder post-norm": {
        "model": {"vocab": 227, "hidden": 48, "context": 29, "positions": "relative", "buckets": 23, "tied": True},
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10, "qk_norm": "rms", "scores": "distance"},
        "experts": {"experts": 7, "active": 4, "width": 37, "shared": 19, "shared_gate": True, "bias": True},
        "norm": {"kind": "layer", "order": "post", "embedding": True},
        "encoder": {"layers": 2},
    },
    "own, pre-norm and idle": {
        "model": {
            "vocab": 227, "source_vocab": 229, "hidden": 48, "context": 29, "source_context": 31,
            "positions": "learned", "scale_embedding": True,
        },
        "attention": {"heads": 6, "kv_heads": 2, "head_dim": 10},
        "feed_forward": {"width": 71, "gated": True},
        "norm": {"kind": "rms", "shared": True, "embedding": True},
        "encoder": {"layers": 2, "experts": {"experts": 7, "active": 4, "width": 37}},
        "decoder": {
            "layers": 3, "attention": {"bias": True}, "cross_attention": {"scores": "distance", "bias": False},
            "feed_forward": {"called": False},
        },
    },
}  # fmt: skip
SHAPES = {**TINY, **VARIANTS}


# Llama 3.1's stretched angles, at a length that tiny contexts reach.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def tiny(name: str, **sets: object) -> Subject:
    """The tiny model of a family, or a variant of it."""
    return subject(f"tiny-{name}", SHAPES[name], sets)


def of_family(question: str, family: str) -> str:
    """A metric or an equation about attention, asked of a family that has none: of its mixers. The tiny own model's
    scores are distances, no product."""
    if family == "own":
        return question.replace("attn.scores", "attn.values")
    if family != "mamba":
        return question
    for attention, mixer in (
        ("attn_scores_values", "mixer.conv"),
        ("attn.scores", "mixer.read_out"),
        ("share.attn", "share.mixer.dt_proj"),
        (".mlp", ".mixer"),
    ):
        question = question.replace(attention, mixer)
    return question


SOURCE = 17
"""Tokens of a source, where an encoder reads one."""


def asked(ours: Subject, work: Workload, source: int = SOURCE) -> Workload:
    """The workload as a model can be asked for it: an encoder alone takes all tokens at once, and a source is read in
    the first step."""
    if not ours.keeps:
        return replace(work, context=work.tokens)
    if ours.source is None:
        return work
    return replace(work, source=source, new_source=source if work.tokens == work.context else 0)


def ran(line: Matmul, axes: Axes) -> Any:
    """A line of products as the reference's modules would write it down."""
    from tfacct.reference.counting import Ran

    dims = line.dims(axes)
    left, right, out = line.bits(axes, 1, 1)
    return Ran(dims.m, dims.k, dims.n, dims.times, left, right, out)


@pytest.fixture(params=sorted(SHAPES))
def tiny_subject(request: pytest.FixtureRequest) -> Subject:
    return tiny(request.param)


@dataclass
class Ran:
    """One run of the command line."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """`run("flops", "gpt2")`: the command line as a terminal of 80 columns, or `columns`, would show it."""

    def call(*arguments: str, columns: int = 80, stdin: bytes = b"") -> Ran:
        from tfacct.cli import main

        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setattr(sys, "argv", ["tfacct", *arguments])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        out, err = io.StringIO(), io.StringIO()
        code = 0
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                main()
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else 1
        return Ran(code, out.getvalue(), err.getvalue())

    return call
