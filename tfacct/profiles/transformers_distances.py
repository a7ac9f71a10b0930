"""How T5 trains: an encoder and a decoder whose blocks add learned scores of distances, made once on each side.

The gradient of these scores is one on each side: every block adds to it, and block 0 makes the table's of it. Norms
scale the stream by a root that is in fp32.
"""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.architecture.parts import Attention, FeedForward, Norm, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Collected, Held, Kept, Moment, Run, joined
from tfacct.profiles.transformers import Transformers
from tfacct.profiles.transformers_biased_sdpa import biased_sdpa, unbiased_sdpa
from tfacct.profiles.transformers_encoders import ROW, loss_of_classes
from tfacct.profiles.transformers_masks import ALIGNED
from tfacct.profiles.transformers_pairs import CROSS, LABELS, SHIFT, SOURCE, Pairs, Reading, Side, Writing
from tfacct.profiles.transformers_parts import STREAM

SCORES = Held("N T S")
ATTENTION = paths.in_every(paths.BLOCKS, "attn")
ADDED, DISTANCES, DROP = f"{ATTENTION}.biased", "distances", "embed.drop"
"""The sum of scores; the table's rows that are read; the one dropout of a side in front of its blocks and behind."""


def part_of(side: Side, at: str, reads: str, part: Part, run: Run) -> Run:
    """What a part of T5's blocks keeps; `run`: what BART's does."""
    if isinstance(part, Norm):
        return run if side.full else _narrow(at, reads, run)
    if type(part) is FeedForward and part.gated and side.habits.drops_product:
        return _dropped_inside(Transformers.part(side, at, reads, part), at)
    if isinstance(part, Attention) and side.attention == "eager":
        place = run.order.index(f"{at}.scores") + 1
        return run._replace(order=(*run.order[:place], ADDED, *run.order[place:]))
    return run


def _narrow(at: str, reads: str, run: Run) -> Run:
    """An RMSNorm whose fp32 copy is squared alone: its root multiplies the stream itself."""
    square, root, scale, weight = run.order
    _, roots, scaled = run.kept
    kept = (
        Kept(reads, "B T D", by=(scale,)),
        Kept(f"{at}.upcast", "B T D", by=(square,), role="full"),
        Kept(roots.path, roots.spec, by=(root, scale), role="full"),
        scaled,
    )
    *weights, _ = run.moments
    wide = Held("B T D", "full", 3)
    squared = (Held("B T D", "full", 4), *((ROW,) if reads == STREAM else ()))  # else the stream's takes up its own
    moments = (*weights, Moment(scale, (wide, ROW)), Moment(square, squared))
    return Run(run.order, kept, moments, (Moment(weight, (Held("B T D", "full"), Held("B T", "full"))),))


def _dropped_inside(run: Run, at: str) -> Run:
    """A gated network of which numbers are dropped in front of its last product."""
    product, drop, down = f"{at}.product", f"{at}.product.drop", f"{at}.down_proj.weight"
    kept = [line for line in run.kept if line.path != product]
    kept += [Kept(drop, "B T F", by=(drop,), role="flag"), Kept(f"{product}.dropped", "B T F", by=(down,))]
    place = run.order.index(down)
    moment = Moment(drop, (Held("B T F", times=2),))
    order = (*run.order[:place], drop, *run.order[place:])
    return run._replace(order=order, kept=tuple(kept), moments=(*run.moments, moment), ahead=(*run.ahead, moment))


def table_of(side: Side, shape: Transformer, *first: str) -> Run:
    """Token ids, the embeddings' dropout, and the distances that the table of scores is read at."""
    if shape.bias is None or shape.positions is not None or shape.embed_norm is not None or shape.embed.scaled:
        raise ConfigError(f"{side.name}: no rule for this front")
    distances = Run((), (Kept(DISTANCES, "T S", by=("rel_bias",), role="index"),))
    return joined(tokens_of(*first), distances, dropped_end(side, "embed"))


def tokens_of(*first: str) -> Run:
    """Token ids, behind some operations."""
    return Run((*first, "embed"), (Kept("tokens", "B T", by=("embed",), role="index"),), (Moment("embed", ()),))


def dropped_end(side: Side, what: str) -> Run:
    """The dropout in front of the blocks, or behind the last norm."""
    if not side.habits.embedding:
        return Run()
    ahead = () if what == "embed" else (Moment(DROP, (ROW, ROW)),)
    return Run((DROP,), (Kept(f"{what}.drop", "B T D", by=(DROP,), role="flag"),), (Moment(DROP, (ROW,)),), ahead)


@record
class ReadingDistances(Reading):
    """The encoder's side."""

    def _sdpa(self, at: str, names: Mapping[str, str], part: Attention) -> Run:  # noqa: ARG002
        return biased_sdpa(at, part, self.batch, aligned=not self.tokens % ALIGNED)

    @property
    def biases(self) -> bool:
        """True: scores of distances are added."""
        return True

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps."""
        return part_of(self, at, reads, part, Reading.part(self, at, reads, part, waits=waits))

    def front(self, shape: Transformer) -> Run:
        """The table of the source, and of distances."""
        return table_of(self, shape)

    def back(self, shape: Transformer) -> Run:
        """A norm and a dropout."""
        return joined(Reading.back(self, shape), dropped_end(self, "final_norm"))

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """The embeddings, where numbers of them are dropped, and the scores."""
        return (*((ROW,) if self.habits.embedding else ()), SCORES)

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """The gradient of the scores."""
        return (Collected(SCORES, ADDED),)


@record
class WritingDistances(Writing):
    """The decoder's side. `source`: tokens that it reads."""

    source: Size = 1

    @property
    def aligned(self) -> bool:
        """True if rows of scores of the source need no padding."""
        return not self.source % ALIGNED

    def _sdpa(self, at: str, names: Mapping[str, str], part: Attention) -> Run:  # noqa: ARG002
        if at == CROSS:
            return unbiased_sdpa(at, part, shared=self.aligned)
        return biased_sdpa(at, part, self.batch, aligned=not self.tokens % ALIGNED)

    @property
    def biases(self) -> bool:
        """True: scores of distances are added."""
        return True

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps."""
        return part_of(self, at, reads, part, Writing.part(self, at, reads, part, waits=waits))

    def front(self, shape: Transformer) -> Run:
        """The labels, the tables of the target and of distances, and what the encoder gave."""
        readers = tuple(f"{CROSS}.{which}_proj.weight" for which in "kv")
        labels = Kept(LABELS, "B T", by=(LABELS, "loss.choose"), role="index")
        shared = self.attention == "sdpa" and self.aligned
        zeros = (Kept("zeros", "N T J", by=(f"{CROSS}.sdpa",)),) if shared else ()
        kept = (labels, Kept(SOURCE, "B J D", by=readers), *zeros)
        return joined(table_of(self, shape, LABELS, SHIFT), Run((), kept))

    def back(self, shape: Transformer) -> Run:
        """The final norm, its dropout, a scale where the head has one, the head and the loss."""
        if shape.head is None or not shape.head.tied:
            raise ConfigError(
                f"{self.name}: no rule for a head with a weight of its own, which the class does not have"
            )
        reads, weight = "final_norm", "lm_head.weight"
        scaled = Run()
        if self.habits.embedding:
            reads = "final_norm.dropped"
        if shape.head.scale is not None:
            reads = "head.scaled"
            scaled = Run(("head.scale",), (), (Moment("head.scale", (ROW, ROW)),))
        head = Run((weight,), (Kept(reads, "B T D", by=(weight,)),), (Moment(weight, (Held("B T V"), ROW)),))
        final = self.part("final_norm", STREAM, shape.final_norm) if shape.final_norm is not None else Run()
        loss = loss_of_classes(self.logits(shape), reads)
        return joined(final, dropped_end(self, "final_norm"), scaled, head, loss)

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """What the encoder's has, the mask, and zeros that are added to scores of the source."""
        mask = (Held("B T S"),) if self.attention == "eager" else ()
        zeros = () if self.attention == "sdpa" and self.aligned else (Held("N T J"),)
        return (*((ROW,) if self.habits.embedding else ()), SCORES, *zeros, *mask)

    def buffers(self, _: Transformer) -> tuple[Kept, ...]:
        """None."""
        return ()

    def collected(self, shape: Transformer) -> tuple[Collected, ...]:
        """Gradients of what the encoder gave, and of the scores."""
        return (*Writing.collected(self, shape), Collected(SCORES, ADDED))


@record
class DistancePairs(Pairs):
    """A model of two sides that adds scores of distances. `source`: tokens of the source."""

    source: Size = 1

    def reading(self) -> ReadingDistances:
        """The encoder's profile."""
        return ReadingDistances(self.attention, self.habits, self.full, self.batch, self.source)

    def writing(self) -> WritingDistances:
        """The decoder's profile."""
        return WritingDistances(self.attention, self.habits, self.full, self.batch, self.tokens, self.source)
