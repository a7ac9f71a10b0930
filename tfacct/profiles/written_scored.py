"""Experts scored by a sigmoid, beside a network of all tokens, written out as DeepseekV3MoE runs them."""

from __future__ import annotations

from tfacct.architecture.parts import Experts, FeedForward
from tfacct.base.errors import ConfigError
from tfacct.profiles import written_operations as ops
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_experts import CHOSEN, SOFTMAX, grouped
from tfacct.profiles.written_networks import gated
from tfacct.profiles.written_operations import ROWS
from tfacct.profiles.written_parts import NETWORK, How
from tfacct.profiles.written_storage import Storage

EVERY = ("B", "T", "E")


def routed(t: Trace, how: How, x: Value, part: Experts) -> Value:
    """The experts run first, then the shared network. Raises ConfigError for others."""
    if part.shared_gate or part.shared_bias or part.bias or not part.gated or part.latent is not None:
        raise ConfigError("transformers under autocast: no rule for these experts that are scored by a sigmoid")
    _logits, shares, _chosen = _scored(t, how, x)
    result = grouped(t, x, shares, trained=how.weights.trained)
    if part.shared is None:
        return result
    shape = FeedForward(hidden=part.hidden, width=part.shared, gated=True, activation=part.activation)
    return ops.total(t, result, gated(t, how, x, shape, at=f"{NETWORK}.shared", wide="Fs"))


def _scored(t: Trace, how: How, x: Value) -> tuple[Value, Value, Storage]:
    """Scores in 16 bits, and what a token's experts are weighted by, a multiple of theirs."""
    logits = ops.linear(t, x, f"{NETWORK}.router", ("E",), trained=how.weights.trained)
    scores = ops.activation(t, logits, SOFTMAX, result=True)
    corrected = t.new(EVERY, "full")
    del corrected

    def gathered(b: Trace, _g: Storage) -> list[Storage | None]:
        zeros = b.new(EVERY)
        made = b.new(EVERY)
        del zeros
        return [made]

    node = t.node((scores.node,), gathered)
    index = t.new(CHOSEN, "index", f"{NETWORK}.chosen")
    made = t.new(CHOSEN)
    t.save(node, index)
    shares = Value(made, CHOSEN, node)
    del made
    if how.habits.shared_out:
        shares = _shared_out(t, shares)
    return logits, ops.scaled(t, shares), index


def _shared_out(t: Trace, shares: Value) -> Value:
    """Divided by their sum, in place: what they were is kept."""

    def summed(b: Trace, _g: Storage) -> list[Storage | None]:
        return [b.new(CHOSEN)]

    def divided(b: Trace, _g: Storage) -> list[Storage | None]:
        whole = b.new(CHOSEN)
        tensors = [b.new(CHOSEN, "full") for _ in range(3)]
        least = b.new(ROWS, "full")
        del tensors
        return [whole, least]

    total = t.new(ROWS, "full", f"{NETWORK}.sum")
    node = t.node((shares.node,), summed)
    before = t.new(CHOSEN, "work", f"{NETWORK}.shares")
    whole = t.node((shares.node, node), divided)
    t.save(whole, before, total)
    return Value(shares.storage, CHOSEN, whole)
