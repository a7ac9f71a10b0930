"""MPNet under autocast, written out: scores of distances, in fp32, are added to those of BERT's encoder in 16 bits."""

from __future__ import annotations

from tfacct.architecture.parts import Attention, FeedForward
from tfacct.architecture.transformer import Transformer
from tfacct.base.record import record
from tfacct.ledger.kept import Collected, Held, Run
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_encoders as encoders
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles.autocast_parts import as_full
from tfacct.profiles.transformers_biased import ADDED, BiasedEncoders
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_parts import ATTN, How, product
from tfacct.profiles.written_storage import Axes

PAIRS: Axes = ("B", "N", "T", "S")
SCORES = Held("B N T S", "full")


def block_of_mpnet(t: Trace, how: How, attn: Attention, mlp: FeedForward) -> Value:
    """MPNetLayer, whose attention's result is there until the sum is normed."""
    x = t.start
    out = _attention(t, how, x, attn)
    h = ops.dropout(t, out, f"{ATTN}.drop") if how.habits.residual else out
    x = encoders.normed(t, h, x, ATTN)
    del out, h
    return encoders.network(t, how, x, mlp)


def _attention(t: Trace, how: How, x: Value, part: Attention) -> Value:
    """Scores stay until it is done."""
    q, k, v = decoders.apart(t, how, x, part)
    scores = heads.multiplied(t, q, k, f"{ATTN}.scores", PAIRS, (f"{ATTN}.q_rotary", f"{ATTN}.k_rotary"))
    scores = _added(t, ops.scaled(t, scores))
    weights = heads.softmax(t, scores, f"{ATTN}.softmax")
    if how.habits.attention:
        weights = ops.dropout(t, weights, f"{ATTN}.softmax.drop")
    made = ("B", "N", "T", "H")
    rows = heads.multiplied(t, weights, v, f"{ATTN}.values", made, (f"{ATTN}.softmax.cast", f"{ATTN}.v_proj"))
    rows = heads.contiguous(t, rows, ("B", "T", "N", "H"), f"{ATTN}.values")
    return product(t, how, rows, f"{ATTN}.o_proj", ("D",), bias=part.out_bias)


def _added(t: Trace, x: Value) -> Value:
    """Scores of distances added in place. Their gradient is cast, and added to what later blocks left: three tensors,
    as many as softmax's gradient has had, its result among them, so this never is what decides."""
    t.named(ADDED)
    return Value(x.storage, x.axes, t.node((x.node,), lambda _b, g: (g,)))


@record
class WrittenDistances(encoders.WrittenEncoders):
    """MPNet's class under autocast."""

    @property
    def biases(self) -> bool:
        """True: scores of distances are added."""
        return True

    def written(self, t: Trace, how: How, attn: Attention, mlp: FeedForward) -> Value:
        """A block, operation by operation."""
        return block_of_mpnet(t, how, attn, mlp)

    def front(self, shape: Transformer) -> Run:
        """As in fp32."""
        own = BiasedEncoders(self.attention, self.habits, True, self.batch, self.tokens)
        return as_full(own.front(shape))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """The scores of distances too."""
        return (*encoders.WrittenEncoders.waiting(self, shape), SCORES)

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """Their gradient."""
        return (Collected(SCORES, ADDED),)
