"""Encoders of BERT's kind under autocast, written out: blocks, the head that predicts masked tokens, and the loss."""

from __future__ import annotations

from functools import partial

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, Classes, FeedForward, Head, Part, Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.kept import Held, Role, Run
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_operations as ops
from tfacct.profiles.autocast_parts import as_full
from tfacct.profiles.base import Habits
from tfacct.profiles.transformers_encoders import CHOICE, TRANSFORM, Encoders
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_autocast import ends, ones_of
from tfacct.profiles.written_networks import activated
from tfacct.profiles.written_operations import Weights
from tfacct.profiles.written_parts import ATTN, NETWORK, How, product
from tfacct.profiles.written_runs import cached, let_go, run_of


def result(t: Trace, how: How, x: Value, at: str, product_of: str) -> Value:
    """A part's last product, and the dropout behind it."""
    return dropped(t, how, product(t, how, x, product_of, ("D",), bias=True), at, product_of)


def dropped(t: Trace, how: How, h: Value, at: str, product_of: str) -> Value:
    """Numbers of a part's result dropped, where they are."""
    if how.habits.residual or (how.habits.network and at == NETWORK):
        return ops.dropout(t, h, f"{product_of}.drop")
    return h


def end(t: Trace, how: How, x: Value, read: Value, at: str, product_of: str) -> Value:
    """The end of a part, and the norm of the sum with what the part read."""
    return normed(t, result(t, how, x, at, product_of), read, at)


def normed(t: Trace, h: Value, read: Value, at: str) -> Value:
    """The norm of a sum."""
    both = ops.total(t, h, read, f"{at}.sum")
    return ops.layer_norm(t, both, f"{at}_norm")


def block_of_bert(t: Trace, how: How, attn: Attention, mlp: FeedForward) -> Value:
    """BertLayer, or DistilBERT's TransformerBlock."""
    x = t.start
    if how.habits.norms_apart:
        h, _weights = _attention(t, how, x, attn)
        x = normed(t, h, x, ATTN)
        h = _inner(t, how, x, mlp)
        h = product(t, how, h, f"{NETWORK}.down_proj", ("D",), bias=True)
        h = dropped(t, how, h, NETWORK, f"{NETWORK}.down_proj")
        return normed(t, h, x, NETWORK)
    values, _weights = decoders.attention_values(t, how, x, attn)[:2]
    x = end(t, how, values, x, ATTN, f"{ATTN}.o_proj")
    del values
    return network(t, how, x, mlp)


def _attention(t: Trace, how: How, x: Value, part: Attention) -> tuple[Value, Value | None]:
    values, weights, _there = decoders.attention_values(t, how, x, part)
    return result(t, how, values, ATTN, f"{ATTN}.o_proj"), weights


def network(t: Trace, how: How, x: Value, mlp: FeedForward) -> Value:
    up = _inner(t, how, x, mlp)
    return end(t, how, up, x, NETWORK, f"{NETWORK}.down_proj")


def _inner(t: Trace, how: How, x: Value, mlp: FeedForward) -> Value:
    h = product(t, how, x, f"{NETWORK}.up_proj", ("F",), bias=True)
    return activated(t, h, f"{NETWORK}.up_proj.act", mlp.activation)


def masked_head(t: Trace, head: Head) -> Value:
    """The head's transform, its activation and norm, and the logits."""
    if head.transform is None:
        raise ConfigError("transformers under autocast: no rule for this head of an encoder")
    h = ops.linear(t, t.start, TRANSFORM, ("Dt",), bias=True)
    h = activated(t, h, f"{TRANSFORM}.act", head.transform)
    h = ops.layer_norm(t, h, "lm_head.norm")
    return ops.linear(t, h, "lm_head", ("V",), bias=True)


def classes(t: Trace, habits: Habits, pooler: Part | None, count: Classes) -> Value:
    """Scores of each position, or of each sequence behind a product of its first position's vector."""
    h = t.start
    if count.pooled:
        if not isinstance(pooler, Pooler) or pooler.reads != "first":
            raise ConfigError("transformers under autocast: no rule for this pooler")
        h = ops.first(t, h)
        if habits.classifier and habits.drops_first:
            h = ops.dropout(t, h, "pooler.drop")
        h = ops.linear(t, h, "pooler", ("Dp",), bias=True)
        h = activated(t, h, "pooler.act", pooler.activation)
    elif pooler is not None:
        raise ConfigError("transformers under autocast: no rule for this pooler")
    if habits.classifier:
        h = ops.dropout(t, h, "classifier.drop")
    return ops.linear(t, h, "classifier", ("Y",), bias=True)


@record
class WrittenEncoders(Encoders):
    """A transformers encoder of BERT's kind under autocast. Its loss is of logits in 16 bits, in fp32 at its end.
    `again`: blocks run again, and keep what they read."""

    again: bool = False

    @property
    def name(self) -> str:
        """Name of the profile."""
        return f"transformers with {self.attention} under autocast"

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "full"

    def block(self, block: Block, *, flows: bool = True) -> Run:  # noqa: ARG002
        """The run of a block."""
        first, second = block.sublayers
        attn, mlp = first.part, second.part
        if not isinstance(attn, Attention) or type(mlp) is not FeedForward or mlp.gated or block.order != "post":
            raise ConfigError(f"{self.name}: no rule for these blocks")
        how, ones = How(self.attention, self.habits, Weights(), seen=True), ones_of(attn, self.batch)

        def make() -> Run:
            kept, bare = (Trace(ones, keeps=keeps) for keeps in (True, False))
            self.written(bare, how, attn, mlp)
            kept.backward(self.written(kept, how, attn, mlp).node)
            run = run_of(kept, bare)
            return let_go(run) if self.again else run

        return cached(("encoder", type(self), repr(block), how, ones, self.again), make)

    def written(self, t: Trace, how: How, attn: Attention, mlp: FeedForward) -> Value:
        """A block, operation by operation."""
        return block_of_bert(t, how, attn, mlp)

    def front(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(Encoders.front(self, shape))

    def back(self, shape: Transformer) -> Run:
        """The head and the loss."""
        head, pooler, count = shape.head, shape.pooler, shape.classes
        if shape.final_norm is not None or (head is None and count is None):
            raise ConfigError(f"{self.name}: no rule for this head of an encoder")

        def scores(t: Trace) -> Value:
            if count is not None:
                return classes(t, self.habits, pooler, count)
            assert head is not None
            return masked_head(t, head)

        # The choice of targets is fuller than the logarithms behind it, which come next.
        run = partial(ends, lambda t: ops.loss_narrow(t, scores(t)), CHOICE)
        return cached(("ends", repr((head, pooler, count)), self.habits), run)

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """The embeddings, where block 0 keeps no more than casts of them."""
        return () if self.again else (Held("B T D", "full"),)
