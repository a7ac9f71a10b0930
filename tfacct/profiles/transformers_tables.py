"""How umT5 trains: T5's blocks, each with a table of distances of its own, whose scores it makes and gives back."""

from __future__ import annotations

from collections.abc import Mapping

from tfacct.architecture.parts import Attention, CrossAttention, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.kept import Collected, Held, Kept, Moment, Run, joined
from tfacct.profiles.transformers_biased_sdpa import unbiased_sdpa
from tfacct.profiles.transformers_distances import (
    ADDED,
    DistancePairs,
    ReadingDistances,
    WritingDistances,
    dropped_end,
    tokens_of,
)
from tfacct.profiles.transformers_encoders import ROW
from tfacct.profiles.transformers_pairs import CROSS, LABELS, SHIFT, SOURCE, Side, Writing

SCORES = Held("N T S")


def with_table(at: str, part: Part, run: Run) -> Run:
    """A part whose scores of distances, or zeros for those of a source, stay until it is done."""
    if isinstance(part, CrossAttention):
        return _beside(run, Held("N T J"))
    if not isinstance(part, Attention):
        return run
    table, scores = f"{at}.rel_bias.weight", f"{at}.scores"
    place = run.order.index(scores if scores in run.order else ADDED)
    line = Kept(f"{at}.distances", "T S", by=(table,), role="index")
    moments = [m._replace(held=(*m.held, SCORES)) if m.at == scores else m for m in run.moments]
    own = Moment(table, (SCORES, Held("B T N H", times=3)))
    order = (*run.order[:place], table, *run.order[place:])
    made = Moment(table, (*on_their_way(part, kept=1), Held("B T N H", times=3)))
    whole = _beside(run._replace(order=order, kept=(*run.kept, line), moments=(*moments, own)), SCORES)
    return whole._replace(ahead=(*whole.ahead, made))


def on_their_way(part: Attention, *, kept: int = 0) -> tuple[Held, ...]:
    """Distances on their way to rows of a table: those that see both ways have a sign apart. `kept`: how many of them
    are counted among what the block keeps."""
    whole = (5 if part.causal else 6) - kept
    pairs = (Held("T S", "index", whole), Held("T S", "full"), Held("T S", "flag"))
    return (*pairs, Held("T", "index", 2))


def _beside(run: Run, held: Held) -> Run:
    return run._replace(ahead=tuple(moment._replace(held=(*moment.held, held)) for moment in run.ahead))


def front_of(side: Side, shape: Transformer, *first: str) -> Run:
    """Token ids and the embeddings' dropout."""
    if shape.bias is not None or shape.positions is not None or shape.embed_norm is not None or shape.embed.scaled:
        raise ConfigError(f"{side.name}: no rule for this front")
    return joined(tokens_of(*first), dropped_end(side, "embed"))


@record
class ReadingTables(ReadingDistances):
    """The encoder's side."""

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps."""
        return with_table(at, part, ReadingDistances.part(self, at, reads, part, waits=waits))

    def front(self, shape: Transformer) -> Run:
        """The table of the source."""
        return front_of(self, shape)

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """The embeddings, where numbers of them are dropped."""
        return (ROW,) if self.habits.embedding else ()

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """None."""
        return ()


@record
class WritingTables(WritingDistances):
    """The decoder's side."""

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps."""
        own = WritingDistances.part(self, at, reads, part, waits=waits)
        zeros = isinstance(part, CrossAttention) and self.attention == "sdpa" and self.aligned  # kept as they are
        return own if zeros else with_table(at, part, own)

    def _sdpa(self, at: str, names: Mapping[str, str], part: Attention) -> Run:
        if at == CROSS:
            return unbiased_sdpa(at, part, shared=False)
        return WritingDistances._sdpa(self, at, names, part)

    def front(self, shape: Transformer) -> Run:
        """The labels, the table of the target, and what the encoder gave."""
        readers = tuple(f"{CROSS}.{which}_proj.weight" for which in "kv")
        labels = Kept(LABELS, "B T", by=(LABELS, "loss.choose"), role="index")
        return joined(front_of(self, shape, LABELS, SHIFT), Run((), (labels, Kept(SOURCE, "B J D", by=readers))))

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """What the encoder's has, and the mask."""
        mask = (Held("B T S"),) if self.attention == "eager" else ()
        return (*((ROW,) if self.habits.embedding else ()), *mask)

    def collected(self, shape: Transformer) -> tuple[Collected, ...]:
        """The gradient of what the encoder gave."""
        return Writing.collected(self, shape)


@record
class TablePairs(DistancePairs):
    """A model of two sides whose blocks have a table each."""

    def reading(self) -> ReadingTables:
        """The encoder's profile."""
        return ReadingTables(self.attention, self.habits, self.full, self.batch, self.source)

    def writing(self) -> WritingTables:
        """The decoder's profile."""
        return WritingTables(self.attention, self.habits, self.full, self.batch, self.tokens, self.source)
