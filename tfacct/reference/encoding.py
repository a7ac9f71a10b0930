"""torch's tensor-parallel plan for classes with an encoder, whose modules have other names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import nn
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

COLUMNS = frozenset(
    """
    query key value q k v q_proj k_proj v_proj q_lin k_lin v_lin Wqkv qkv_proj
    fc1 lin1 wi wi_0 wi_1 Wi gate_proj up_proj up_gate_proj relative_attention_bias
    """.split()
)
ROWS = frozenset("o out_proj o_proj out_lin Wo fc2 lin2 wo down_proj".split())
ENDS = {"intermediate.dense": ColwiseParallel, "output.dense": RowwiseParallel}
"""Matmuls of BERT's layers, which all have the same name."""
SCORES = frozenset(("relative_attention_bias",))
LOGITS = frozenset("lm_head decoder vocab_projector generator_lm_head proj_out".split())
TABLES = frozenset("embed_tokens word_embeddings tok_embeddings shared".split())
HEADS = ("n_heads", "inner_dim", "all_head_size")
"""Attributes of a class with numbers of heads, which are set to those of a rank; so are `num_heads` and their width if
attention has these."""
BIAS = "final_logits_bias"
"""A buffer that BART adds to the logits."""


def shard(model: Any, ranks: Any, tp: int) -> None:
    """Shards a model over ranks; shared weights stay shared."""
    together: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        together.setdefault(id(parameter), []).append(name)
    parallelize_module(model, ranks, dict(_plan(model)))
    for names in together.values():
        every = [model.get_parameter(name) for name in names]
        one = next((parameter for parameter in every if isinstance(parameter, DTensor)), every[0])
        if len(names) > 1:
            for name in names:
                owner, _, leaf = name.rpartition(".")
                setattr(model.get_submodule(owner), leaf, one)
    for module in model.modules():
        attends = hasattr(module, "num_heads") and hasattr(module, "embed_dim")
        for size in (*HEADS, "num_heads", "embed_dim") if attends else HEADS:
            size_of_all = getattr(module, size, None)
            if isinstance(size_of_all, int):
                setattr(module, size, size_of_all // tp)
    bias = getattr(model, BIAS, None)
    if bias is not None:
        model.register_buffer(BIAS, bias[:, : -(-bias.shape[-1] // tp)])


def _plan(model: Any) -> Iterator[tuple[str, ParallelStyle]]:
    inside = {id(module) for blocks in blocks_of(model) for module in blocks.modules()}
    for name, module in model.named_modules():
        leaf = name.rpartition(".")[2]
        if isinstance(module, nn.Embedding) and leaf in TABLES:
            yield name, RowwiseParallel(input_layouts=Replicate(), output_layouts=Replicate())
        elif isinstance(module, nn.Linear) and leaf in LOGITS:
            yield name, ColwiseParallel()
        elif id(module) not in inside and leaf not in SCORES:
            continue  # modules outside the layers are whole, except scores of heads
        elif leaf in COLUMNS:
            yield name, ColwiseParallel()
        elif leaf in ROWS:
            yield name, RowwiseParallel()
        else:
            for end, style in ENDS.items():
                if name.endswith(end):
                    yield name, style()


def blocks_of(model: Any) -> list[Any]:
    """Lists of layers, of encoder and decoder: those that are not inside another list."""
    found: list[Any] = []

    def look(module: Any) -> None:
        for child in module.children():
            if isinstance(child, nn.ModuleList):
                found.append(child)
            else:
                look(child)

    look(model)
    return found
