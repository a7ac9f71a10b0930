"""How the transformers classes of BART's kind train: an encoder and a decoder with norms of sums, or norms in front.

The loss is that of labels of the decoder's own, of which its tokens are a shifted copy.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.architecture.parts import Attention, CrossAttention, FeedForward, Norm, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import AGAIN, Collected, Handed, Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.pairs import named
from tfacct.profiles.transformers import Transformers
from tfacct.profiles.transformers_encoders import CHOICE, ROW, Encoders, loss_of_classes
from tfacct.profiles.transformers_parts import STREAM, dropout, norm

CROSS = paths.in_every(paths.BLOCKS, "cross")
MEMORY, SOURCE = Held("B J D"), "memory"
"""What the encoder gave, and its name."""
LABELS, SHIFT = "labels", "labels.shift"
"""The labels; the shift of a copy of them, where it is made behind the encoder."""


@record
class Side(Encoders):
    """A side of such a model: dropouts and activations are functions of the block."""

    @property
    def of_pair(self) -> bool:
        """True: it is one side of two."""
        return True

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps."""
        run = Transformers.part(self, at, reads, part, waits=waits)
        return dropped_inside(run, at) if type(part) is FeedForward and self.habits.drops_product else run

    def drop(self, at: str, *, attends: bool) -> str:  # noqa: ARG002
        """Name of the dropout behind a part."""
        return f"{at}.drop"

    def summed(self, at: str, reads: str, part: Norm) -> Run:
        """The norm of a sum, beside which nothing waits."""
        run = Encoders.summed(self, at, reads, part)
        return run._replace(ahead=tuple(moment._replace(held=moment.held[:-1]) for moment in run.ahead))

    def tables(self, shape: Transformer, *, own: bool, first: tuple[str, ...] = ()) -> Run:
        """Token ids, positions, and the norm of their sum. `own`: each sequence has positions of its own. `first`:
        operations in front."""
        if shape.positions is None:
            raise ConfigError(f"{self.name}: no rule for this front")
        kept = [Kept("tokens", "B T", by=("embed",), role="index")]
        order, moments = [*first, "embed"], [Moment("embed", ())]
        if shape.positions.behind and self.of_target:
            return self._positioned(shape, Run(tuple(order), tuple(kept), tuple(moments)))
        order.append("embed.scale")  # times 1, if need be
        moments.append(Moment("embed.scale", (ROW,)))
        if not shape.positions.stored:  # sines that are made
            if shape.embed_norm is not None:
                raise ConfigError(f"{self.name}: no rule for sines and a norm behind them")
            dropped = dropout("embed.drop") if self.habits.embedding else Run()
            return joined(Run(tuple(order), tuple(kept), tuple(moments)), dropped)
        dropped = dropout("embed.drop") if self.habits.embedding else Run()
        if not shape.positions.trained and shape.embed_norm is None:
            return joined(Run(tuple(order), tuple(kept), tuple(moments)), dropped)
        order.append("pos_embed")
        kept.append(Kept("positions", "B T" if own else "T", by=("pos_embed",), role="index"))
        summed = not own and (self.batch > 1 or self.habits.one_position)  # rows without an axis of sequences
        moments.append(Moment("pos_embed", (Held("T D"),) if summed else ()))
        runs = [Run(tuple(order), tuple(kept), tuple(moments))]
        if shape.embed_norm is not None:
            normed = norm("embed_norm", "embed.sum", shape.embed_norm, full=self.full)
            runs.append(normed._replace(moments=(Moment(normed.order[0], (ROW,)),), ahead=()))
        return joined(*runs, dropout("embed_norm.drop") if self.habits.embedding else Run())

    def _positioned(self, shape: Transformer, tables: Run) -> Run:
        """Positions, and the norm of the tokens' rows, to whose result they are added."""
        if shape.embed_norm is None:
            raise ConfigError(f"{self.name}: no rule for this front")
        row = Held("T D")
        numbers = Kept("positions", "T", by=("pos_embed",), role="index")
        positions = Run(("pos_embed",), (numbers,), (Moment("pos_embed", (row,)),))
        normed = norm("embed_norm", "embed", shape.embed_norm, full=self.full)
        normed = normed._replace(moments=(Moment(normed.order[0], (ROW, row)),), ahead=())
        return joined(tables, positions, normed, dropout("embed_norm.drop") if self.habits.embedding else Run())

    @property
    def of_target(self) -> bool:
        """True of the decoder's side."""
        return False

    def buffers(self, _: Transformer) -> tuple[Kept, ...]:
        """None but those of the decoder."""
        return ()


@record
class Reading(Side):
    """The encoder's side."""

    def front(self, shape: Transformer) -> Run:
        """Tables of the source."""
        return self.tables(shape, own=not self.habits.one_position)

    def back(self, shape: Transformer) -> Run:
        """A norm, where it has one."""
        if shape.final_norm is None:
            return Run()
        return self.part("final_norm", STREAM, shape.final_norm)

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """The embeddings, and those of positions, of all sequences or of one for all."""
        once = shape.positions is not None and shape.positions.stored and not shape.positions.trained
        once = once or self.habits.one_position
        return (ROW, Held("T D") if once else ROW)


@record
class Writing(Side):
    """The decoder's side."""

    @property
    def sees_all(self) -> bool:
        """False: tokens see those in front."""
        return False

    @property
    def of_target(self) -> bool:
        """True of the decoder's side."""
        return True

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps, attention to the source among them."""
        if isinstance(part, CrossAttention):
            return self._cross(at, reads, part)
        return Side.part(self, at, reads, part, waits=waits)

    def _cross(self, at: str, reads: str, part: CrossAttention) -> Run:
        if part.group != 1 or part.source_hidden is not None or part.softcap or part.score_function != "product":
            raise ConfigError(f"{self.name}: no rule for this attention to a source")
        like = Attention(hidden=part.hidden, kv_heads=part.kv_heads, group=1, head_dim=part.head_dim, causal=False)
        names: Mapping[str, str] = {which: f"{at}.{which}_proj" for which in "qk"}
        inner = (self._eager if self.attention == "eager" else self._sdpa)(at, names, like)
        q, k, v, o = (f"{at}.{which}_proj.weight" for which in "qkvo")
        dq, dk = Held("B T N H"), Held("B J K H")
        moments = (
            Moment(q, (dq, ROW)),
            Moment(q, (ROW, ROW)),
            Moment(k, (dq, dk, MEMORY)),
            Moment(k, (dq, MEMORY, MEMORY), after=True),
            Moment(v, (dq, dk, dk, MEMORY)),
            Moment(v, (dq, dk, MEMORY, MEMORY)),
        )
        read = Run((q, k, v), (Kept(reads, "B T D", by=(q,)),), moments)
        out = Run((o,), (), (Moment(o, (dq, *self._waiting())),))
        return joined(read, named(inner, {"S": "J", "S8": "J8"}), out)

    def front(self, shape: Transformer) -> Run:
        """The labels, tables of the target, and what the encoder gave."""
        tables = self.tables(shape, own=False, first=(LABELS,))
        readers = tuple(f"{CROSS}.{which}_proj.weight" for which in "kv")
        kept = [Kept(LABELS, "B T", by=(LABELS, CHOICE), role="index"), Kept(SOURCE, "B J D", by=readers)]
        order: tuple[str, ...] = ()
        if self.attention == "eager":
            kept.append(Kept("mask", "B T S", by=(AGAIN,)))
            order = (AGAIN,)
        return joined(tables, Run(order, tuple(kept)))

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "work"

    def logits(self, _: Transformer) -> Held:
        """Logits of the vocabulary."""
        return Held("B T V")

    def back(self, shape: Transformer) -> Run:
        """The final norm, where it has one, the head, the sum with a bias that is a buffer, and the loss."""
        final, reads = Run(), STREAM
        if shape.final_norm is not None:
            final, reads = self._final(shape), "final_norm"
        weight = "lm_head.weight"
        head = Run((weight,), (Kept(reads, "B T D", by=(weight,)),), (Moment(weight, (Held("B T V"), ROW)),))
        return joined(final, head, loss_of_classes(self.logits(shape), reads))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """Embeddings, numbers of the positions or what a mask is made of, and eager attention's mask."""
        mask = (Held("B T S"),) if self.attention == "eager" else ()
        if shape.positions is not None and not shape.positions.stored:
            return (ROW, ROW, *mask)
        if shape.positions is not None and not shape.positions.trained:
            numbers = () if self.habits.ones_stay else (Held("T", "index"),)
            return (ROW, Held("T D"), *numbers, Held("B T", "full"), *mask)
        return (ROW, Held("T D"), Held("B T", "full") if self.habits.ones_stay else Held("T", "index"), *mask)

    def handed(self, _: Transformer) -> tuple[Handed, ...]:
        """Nothing that is not kept."""
        return ()

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """The bias of the logits, or the sines of both sides."""
        if shape.positions is not None and not shape.positions.stored:
            return (Kept("sines", "D", by=(), times=2 * int(shape.positions.rows)),)
        return (Kept("logits.bias", "V", by=()),)

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """The gradient of what the encoder gave."""
        return (Collected(MEMORY, f"{CROSS}.v_proj.weight"),)


def dropped_inside(run: Run, at: str) -> Run:
    """A network of which numbers are dropped in front of its last product."""
    act, drop, down = f"{at}.act", f"{at}.act.drop", f"{at}.down_proj.weight"
    own = [line for line in run.kept if line.path != f"{act}.result"]
    result = next(line for line in run.kept if line.path == f"{act}.result")
    if act in result.by:  # relu's result is what its gradient needs
        own.append(Kept(result.path, result.spec, by=(act,), role=result.role))
    own += [Kept(drop, "B T F", by=(drop,), role="flag"), Kept(f"{act}.dropped", "B T F", by=(down,))]
    place = run.order.index(down)
    moment = Moment(drop, (Held("B T F", times=2),))
    return run._replace(
        order=(*run.order[:place], drop, *run.order[place:]), kept=tuple(own), moments=(*run.moments, moment)
    )


@record
class Pairs(Transformers):
    """A model of two sides with one kind of attention."""

    def reading_of(self, source: Size) -> Pairs:  # noqa: ARG002
        """The same beside a source of so many tokens."""
        return self

    @property
    def stream(self) -> Role:
        """Role of the stream."""
        return "work"

    def reading(self) -> Reading:
        """The encoder's profile."""
        return Reading(self.attention, self.habits, self.full, self.batch, self.tokens)

    def writing(self) -> Writing:
        """The decoder's profile."""
        return Writing(self.attention, self.habits, self.full, self.batch, self.tokens)
