"""Operations of transformers classes that change no count and are slow or impossible on the meta device: skipped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from importlib import import_module
from typing import Any
from unittest.mock import patch

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
        for part in (_brief_recurrence, _no_global_tokens, _first_expert_only, _same_angles, _complete_pools, _unsplit):
            left_out.enter_context(part(config))
        yield


def _of_dbrx(experts: Any, rows: Any, chosen: Any) -> None:
    sent = rows.reshape(-1, experts.hidden_size).repeat_interleave(chosen.shape[-1], dim=0)
    experts.mlp(
        sent, *(matrix[: experts.ffn_hidden_size] for matrix in (experts.mlp.w1, experts.mlp.v1, experts.mlp.w2))
    )


def _of_step(experts: Any, rows: Any, chosen: Any) -> None:
    sent = rows.repeat_interleave(chosen.shape[-1], dim=0)
    linear = torch.nn.functional.linear
    linear(experts._apply_gate(linear(sent, experts.gate_up_proj[0])), experts.down_proj[0])


EXPERT_LOOPS = {
    "dbrx": ("dbrx.modeling_dbrx", "DbrxExperts", _of_dbrx),
    "step3p5": ("step3p7.modeling_step3p7", "Step3p7Experts", _of_step),
}
"""Types whose class reads in a loop which experts have tokens → its module, its experts, and the replacement."""


def _first_expert_only(config: Any) -> AbstractContextManager[object]:
    """A loop cannot read on meta which experts have tokens, so the first expert gets all."""
    if config.model_type not in EXPERT_LOOPS:
        return nullcontext()
    module, name, first = EXPERT_LOOPS[config.model_type]
    experts: Any = getattr(import_module(f"transformers.models.{module}"), name)
    original = experts.forward

    def forward(self: Any, rows: Any, chosen: Any, weights: Any) -> Any:
        if not rows.is_meta:
            return original(self, rows, chosen, weights)
        first(self, rows, chosen)
        return torch.zeros_like(rows)

    return patch.object(experts, "forward", forward)


def _unsplit(config: Any) -> AbstractContextManager[object]:
    """JetMoE's router returns the number of tokens per expert, which does not exist on meta: the first expert gets
    all."""
    if config.model_type != "jetmoe":
        return nullcontext()
    gating: Any = import_module("transformers.models.jetmoe.modeling_jetmoe").JetMoeTopKGating
    plain = gating.forward

    def forward(self: Any, rows: Any) -> Any:
        if not rows.is_meta:
            return plain(self, rows)
        scores, count = self.layer(rows), rows.shape[0] * self.top_k
        places = torch.zeros(count, dtype=torch.long, device="meta")
        sent = [count, *[0] * (self.num_experts - 1)]
        return places, places, torch.zeros(count, dtype=rows.dtype, device="meta"), sent, scores

    return patch.object(gating, "forward", forward)


def _no_global_tokens(config: Any) -> AbstractContextManager[object]:
    """LED and Longformer read whether any token has global attention, which is not possible on meta: there is none."""
    if not hasattr(config, "attention_window"):
        return nullcontext()
    plain = torch.Tensor.item
    return patch.object(torch.Tensor, "item", lambda self: False if self.is_meta else plain(self))


def _complete_pools(config: Any) -> AbstractContextManager[object]:
    """GLM-5.3-Flash's indexer reads which groups of tokens are complete, which is not possible on meta: without
    padding, all are except possibly the last one."""
    if config.model_type != "glm5_next_text":
        return nullcontext()
    module = import_module("transformers.models.glm5_next.modeling_glm5_next")
    indexer: Any = module.Glm5NextTextIndexer
    plain = indexer.get_pooled_states

    def pooled(self: Any, packed_states: Any) -> Any:
        if not packed_states.is_meta:
            return plain(self, packed_states)
        batch, tokens, _ = packed_states.shape
        count, rate = tokens // self.index_kpool, self.index_kpool
        keys = packed_states.narrow(1, 0, count * rate)[..., : self.head_dim].reshape(batch, count, rate, self.head_dim)
        places = torch.zeros(batch, count, rate, dtype=torch.long, device="meta")
        return keys.sum(dim=2), places, torch.ones(batch, count, dtype=torch.bool, device="meta")

    return patch.object(indexer, "get_pooled_states", pooled)


def _same_angles(config: Any) -> AbstractContextManager[object]:
    """RoPE that is recomputed for longer texts: the class reads the length of the text, which is skipped on meta."""
    if "'dynamic'" not in str(getattr(config.get_text_config(), "rope_parameters", None)):
        return nullcontext()
    plain = torch.Tensor.__bool__
    return patch.object(torch.Tensor, "__bool__", lambda self: not self.is_meta and plain(self))


def _brief_recurrence(config: Any) -> AbstractContextManager[object]:
    """Shortens the loop over tokens in the classes of RWKV and RecurrentGemma to the first `LOOPED`; the others would
    have the same shapes. The loop is pointwise work, which counters ignore, and takes a second per hundred tokens.
    """
    if config.model_type not in LOOPS:
        return nullcontext()
    module, owner, name = LOOPS[config.model_type]
    container: Any = import_module(f"transformers.models.{module}")
    container = getattr(container, owner) if owner else container
    original = getattr(container, name)

    def rwkv(decay: Any, bonus: Any, key: Any, value: Any, **states: Any) -> Any:
        _, state = original(decay, bonus, key[:, :LOOPED], value[:, :LOOPED], **states)
        return torch.zeros_like(key), state

    def lru(self: Any, hidden_states: Any, recurrent_gate: Any, reset: Any, recurrent_states: Any) -> Any:
        some = (each[:, :LOOPED] for each in (hidden_states, recurrent_gate, reset))
        _, state = original(self, *some, recurrent_states)
        return torch.zeros_like(hidden_states), state

    return patch.object(container, name, lru if owner else rwkv)
