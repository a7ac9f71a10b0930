"""What several tests share: tiny models with every size its own, and the command line in this process."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tfacct.lines import Matmul
from tfacct.notation import Axes
from tfacct.subject import Subject, subject

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
    "cs336": {
        "model_type": "cs336", "vocab_size": 83, "context_length": 41, "num_layers": 2, "d_model": 48, "num_heads": 8,
        "d_ff": 89,
    },
}  # fmt: skip


# Llama 3.1's stretched angles, at a length that tiny contexts reach.
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


def tiny(family: str, **sets: object) -> Subject:
    """The tiny model of a family."""
    return subject(f"tiny-{family}", TINY[family], sets)


def ran(line: Matmul, axes: Axes) -> Any:
    """A line of products as the reference's modules would write it down."""
    from tfacct.reference.counting import Ran

    dims = line.dims(axes)
    left, right, out = line.bits(axes, 1, 1)
    return Ran(dims.m, dims.k, dims.n, dims.times, left, right, out)


@pytest.fixture(params=sorted(TINY))
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
