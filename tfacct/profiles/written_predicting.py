"""ModernBERT under autocast, written out: its blocks, whose first has a norm less, its head, and the loss in fp32."""

from __future__ import annotations

from tfacct.architecture.blocks import Block
from tfacct.architecture.parts import Attention, FeedForward, Norm
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.kept import Handed, Held, Kept, Run
from tfacct.profiles import written_decoders as decoders
from tfacct.profiles import written_heads as heads
from tfacct.profiles import written_operations as ops
from tfacct.profiles import written_views as views
from tfacct.profiles.autocast_parts import as_full, full
from tfacct.profiles.transformers_encoders import TRANSFORM, Predicting
from tfacct.profiles.transformers_masks import ALIGNED
from tfacct.profiles.written import Trace, Value
from tfacct.profiles.written_autocast import ends, ones_of
from tfacct.profiles.written_networks import SMOOTH, activated
from tfacct.profiles.written_operations import Weights
from tfacct.profiles.written_parts import ATTN, LETTERS, NETWORK, How, product
from tfacct.profiles.written_runs import cached, let_go, run_of

SOFTMAX = "loss.softmax"


def block_of_modernbert(t: Trace, how: How, attn_norm: Norm | None, attn: Attention, mlp: FeedForward) -> Value:
    """ModernBertEncoderLayer, which has what attention gave to its end."""
    x = t.start
    h = x if attn_norm is None else ops.layer_norm(t, x, f"{ATTN}_norm")
    attended, _weights = _attention(t, how, h, attn)
    del h
    x = ops.total(t, x, attended, "blocks.*.mid")
    h = ops.layer_norm(t, x, f"{NETWORK}_norm")
    h = _network(t, how, h, mlp)
    return ops.total(t, x, h)


def _attention(t: Trace, how: How, x: Value, part: Attention) -> tuple[Value, Value | None]:
    """Queries, keys and values of one product, which stays; copies in fp32 turn, and both are cast back at the end."""
    each = [(f"{ATTN}.{which}_proj", (letter, "H")) for which, letter in LETTERS.items()]
    whole, node = views.products(t, x, each, (views.APART, "N", "H"), bias=part.qkv_bias)
    laid = ("B", "T", views.APART, "N", "H")
    q, k, v = views.chunks(t, whole, node, laid, laid, [("B", letter, "T", "H") for letter in LETTERS.values()])
    wide = heads.turned_copies(t, q, how.turn, last=True), heads.turned_copies(t, k, how.turn)
    q, k = (ops.cast(t, one, "work", f"{ATTN}.{which}_rotary") for one, which in zip(wide, "qk", strict=True))
    del wide
    values, weights = decoders.attend(t, how, q, k, v, part)
    return product(t, how, values, f"{ATTN}.o_proj", ("D",), bias=part.out_bias), weights


def _network(t: Trace, how: How, x: Value, part: FeedForward) -> Value:
    """A gated network whose gate and up come from one product."""
    each = [(f"{NETWORK}.{which}_proj", ("F",)) for which in ("gate", "up")]
    whole, node = views.products(t, x, each, (views.APART,), bias=part.bias)
    laid = ("B", "T", views.APART)
    gate, up = views.chunks(t, whole, node, laid, (*laid, "F"), [("B", "T", "F")] * 2)
    del whole, node
    act = ops.activation(t, gate, f"{NETWORK}.act")
    both = ops.times(t, act, up, f"{NETWORK}.product")
    del act
    return product(t, how, both, f"{NETWORK}.down_proj", ("D",), bias=part.bias)


@record
class WrittenPredicting(Predicting):
    """ModernBERT's class under autocast. `again`: blocks run again, and keep what they read."""

    again: bool = False

    @property
    def name(self) -> str:
        """Name of the profile."""
        return f"transformers with {self.attention} under autocast"

    def block(self, block: Block) -> Run:
        """The run of a block."""
        first, second = block.sublayers
        attn, mlp = first.part, second.part
        known = isinstance(attn, Attention) and type(mlp) is FeedForward and mlp.gated and mlp.activation in SMOOTH
        if not known or not self.habits.turns_copies or second.norm is None or block.order != "pre":
            raise ConfigError(f"{self.name}: no rule for these blocks")
        assert isinstance(attn, Attention)
        assert isinstance(mlp, FeedForward)
        masks = self.reaches(attn.window)
        how = How(
            self.attention, self.habits, Weights(), self._turn(attn), masks, not self.tokens % ALIGNED, seen=not masks
        )
        ones, norm = ones_of(attn, self.batch), first.norm

        def make() -> Run:
            kept, bare = (Trace(ones, keeps=keeps) for keeps in (True, False))
            block_of_modernbert(bare, how, norm, attn, mlp)
            kept.backward(block_of_modernbert(kept, how, norm, attn, mlp).node)
            run = run_of(kept, bare)
            return let_go(run) if self.again and norm is None else run

        return cached(("modernbert", repr(block), how, ones, self.again), make)

    def front(self, shape: Transformer) -> Run:
        """As in fp32."""
        return as_full(Predicting.front(self, shape))

    def back(self, shape: Transformer) -> Run:
        """The final norm, whose result the caller has to the end, the head, and the loss of a copy in fp32."""
        head = shape.head
        if head is None or head.transform is None or shape.final_norm is None:
            raise ConfigError(f"{self.name}: no rule for this head of an encoder")
        transform, biased, bias = head.transform, head.transform_bias, head.bias

        def loss(t: Trace) -> Value:
            normed = ops.layer_norm(t, t.start, "final_norm")
            h = ops.linear(t, normed, TRANSFORM, ("Dt",), bias=biased)
            h = activated(t, h, f"{TRANSFORM}.act", transform)
            h = ops.layer_norm(t, h, "lm_head.norm")
            h = ops.linear(t, h, "lm_head", ("V",), bias=bias)
            return ops.loss_wide(t, h)

        return cached(("ends of modernbert", repr(head)), lambda: ends(loss, SOFTMAX))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """As in fp32, and the embeddings, of which block 0 keeps no more than a cast."""
        own = () if self.again else (Held("B T D", "full"),)
        return (*full(Predicting.waiting(self, shape)), *own)

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """As in fp32."""
        return tuple(each._replace(held=full((each.held,))[0]) for each in Predicting.handed(self, shape))

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """As in fp32."""
        return as_full(Run(kept=Predicting.buffers(self, shape))).kept
