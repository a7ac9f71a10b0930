"""Operations of transformers classes that change no count and are slow or impossible on the meta device: skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

import torch

LOOPED = 2
"""Number of tokens in a shortened loop of a class."""

LOOPS = {
    "rwkv": ("rwkv.modeling_rwkv", "", "rwkv_linear_attention"),
    "recurrent_gemma": ("recurrent_gemma.modeling_recurrent_gemma", "RecurrentGemmaRglru", "_rnn_scan"),
}
"""Types whose class loops over the tokens → its module, the class that contains the loop if any, the loop."""


@contextmanager
def as_on_meta(config: Any) -> Iterator[None]:
    """Runs a class without operations that do not affect counts and cannot run on meta."""
    with ExitStack() as left_out:
        for part in (_brief_recurrence, _no_global_tokens, _unasked, _same_angles, _whole_pools, _unsplit):
            left_out.enter_context(part(config))
        yield


def _of_dbrx(own: Any, rows: Any, chosen: Any) -> None:
    sent = rows.reshape(-1, own.hidden_size).repeat_interleave(chosen.shape[-1], dim=0)
    own.mlp(sent, *(matrix[: own.ffn_hidden_size] for matrix in (own.mlp.w1, own.mlp.v1, own.mlp.w2)))


def _of_step(own: Any, rows: Any, chosen: Any) -> None:
    sent = rows.repeat_interleave(chosen.shape[-1], dim=0)
    linear = torch.nn.functional.linear
    linear(own._apply_gate(linear(sent, own.gate_up_proj[0])), own.down_proj[0])


ASKING = {
    "dbrx": ("dbrx.modeling_dbrx", "DbrxExperts", _of_dbrx),
    "step3p5": ("step3p7.modeling_step3p7", "Step3p7Experts", _of_step),
}
"""Types whose class reads in a loop which experts have tokens → its module, its experts, and the replacement."""


@contextmanager
def _unasked(config: Any) -> Iterator[None]:
    """A loop cannot read on meta which experts have tokens, so the first expert gets all."""
    if config.model_type not in ASKING:
        yield
        return
    module, name, first = ASKING[config.model_type]
    experts: Any = getattr(import_module(f"transformers.models.{module}"), name)
    whole = experts.forward

    def forward(own: Any, rows: Any, chosen: Any, weights: Any) -> Any:
        if not rows.is_meta:
            return whole(own, rows, chosen, weights)
        first(own, rows, chosen)
        return torch.zeros_like(rows)

    experts.forward = forward
    try:
        yield
    finally:
        experts.forward = whole


@contextmanager
def _unsplit(config: Any) -> Iterator[None]:
    """JetMoE's router returns the number of tokens per expert, which does not exist on meta: the first expert gets
    all."""
    if config.model_type != "jetmoe":
        yield
        return
    gating: Any = import_module("transformers.models.jetmoe.modeling_jetmoe").JetMoeTopKGating
    plain = gating.forward

    def forward(own: Any, rows: Any) -> Any:
        if not rows.is_meta:
            return plain(own, rows)
        scores, count = own.layer(rows), rows.shape[0] * own.top_k
        places = torch.zeros(count, dtype=torch.long, device="meta")
        sent = [count, *[0] * (own.num_experts - 1)]
        return places, places, torch.zeros(count, dtype=rows.dtype, device="meta"), sent, scores

    gating.forward = forward
    try:
        yield
    finally:
        gating.forward = plain


@contextmanager
def _no_global_tokens(config: Any) -> Iterator[None]:
    """LED and Longformer read whether any token has global attention, which is not possible on meta: there is none."""
    if not hasattr(config, "attention_window"):
        yield
        return
    plain = torch.Tensor.item
    torch.Tensor.item = lambda own: False if own.is_meta else plain(own)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.item = plain  # type: ignore[method-assign]


@contextmanager
def _whole_pools(config: Any) -> Iterator[None]:
    """GLM-5.3-Flash's indexer reads which groups of tokens are complete, which is not possible on meta: without
    padding, all are except possibly the last one."""
    if config.model_type != "glm5_next_text":
        yield
        return
    room = import_module("transformers.models.glm5_next.modeling_glm5_next")
    indexer: Any = room.Glm5NextTextIndexer
    plain = indexer.get_pooled_states

    def pooled(own: Any, packed_states: Any) -> Any:
        if not packed_states.is_meta:
            return plain(own, packed_states)
        batch, tokens, _ = packed_states.shape
        count, rate = tokens // own.index_kpool, own.index_kpool
        keys = packed_states.narrow(1, 0, count * rate)[..., : own.head_dim].reshape(batch, count, rate, own.head_dim)
        places = torch.zeros(batch, count, rate, dtype=torch.long, device="meta")
        return keys.sum(dim=2), places, torch.ones(batch, count, dtype=torch.bool, device="meta")

    indexer.get_pooled_states = pooled
    try:
        yield
    finally:
        indexer.get_pooled_states = plain


@contextmanager
def _same_angles(config: Any) -> Iterator[None]:
    """RoPE that is recomputed for longer texts: the class reads the length of the text, which is skipped on meta."""
    if "'dynamic'" not in str(getattr(config.get_text_config(), "rope_parameters", None)):
        yield
        return
    plain = torch.Tensor.__bool__
    torch.Tensor.__bool__ = lambda own: not own.is_meta and plain(own)  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.__bool__ = plain  # type: ignore[method-assign]


@contextmanager
def _brief_recurrence(config: Any) -> Iterator[None]:
    """Shortens the loop over tokens in the classes of RWKV and RecurrentGemma to the first `LOOPED`; the others would
    have the same shapes. The loop is pointwise work, which counters ignore, and takes a second per hundred tokens.
    """
    if config.model_type not in LOOPS:
        yield
        return
    module, owner, name = LOOPS[config.model_type]
    container: Any = import_module(f"transformers.models.{module}")
    container = getattr(container, owner) if owner else container
    original = getattr(container, name)

    def rwkv(decay: Any, bonus: Any, key: Any, value: Any, **states: Any) -> Any:
        _, state = original(decay, bonus, key[:, :LOOPED], value[:, :LOOPED], **states)
        return torch.zeros_like(key), state

    def lru(own: Any, hidden_states: Any, recurrent_gate: Any, reset: Any, recurrent_states: Any) -> Any:
        some = (each[:, :LOOPED] for each in (hidden_states, recurrent_gate, reset))
        _, state = original(own, *some, recurrent_states)
        return torch.zeros_like(hidden_states), state

    setattr(container, name, lru if owner else rwkv)
    try:
        yield
    finally:
        setattr(container, name, original)
