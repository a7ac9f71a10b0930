"""How MPNet trains: BERT's encoder with learned scores of distances, made once, which every block adds to its own.

The gradient of these scores is one: every block adds to it.
"""

from __future__ import annotations

from tfacct.architecture.parts import Attention, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.kept import Collected, Held, Kept, Moment, Run, joined
from tfacct.profiles.transformers_encoders import Encoders

SCORES = Held("B N T S")
ATTENTION = paths.in_every(paths.BLOCKS, "attn")
ADDED = f"{ATTENTION}.biased"


@record
class BiasedEncoders(Encoders):
    """An encoder whose blocks add the scores of distances. They are no modules' sums: scores stay until attention is
    done."""

    @property
    def biases(self) -> bool:
        """True: scores of distances are added."""
        return True

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps."""
        run = Encoders.part(self, at, reads, part, waits=waits)
        return added(run) if isinstance(part, Attention) else run

    def drop(self, at: str, *, attends: bool) -> str:
        """Name of the dropout behind a part: attention's is a module of the block."""
        return f"{at}.drop" if attends else Encoders.drop(self, at, attends=attends)

    def front(self, shape: Transformer) -> Run:
        """Tables, and the scores of distances behind them."""
        if shape.bias is None:
            raise ConfigError(f"{self.name}: no rule for an encoder without scores of distances")
        table = Run(
            ("rel_bias",),
            (Kept("distances", "T S", by=("rel_bias",), role="index"),),
            self._gathered("rel_bias"),
        )
        return joined(Encoders.front(self, shape), table)

    def _gathered(self, at: str) -> tuple[Moment, ...]:
        """The table's gradient, of that of the scores, summed over the sequences first."""
        if self.batch == 1:
            return (Moment(at, (SCORES,)),)
        return (Moment(at, (SCORES, Held("N T S")), done=False), Moment(at, (Held("N T S"),)))

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """The scores of distances."""
        return (SCORES,)

    def collected(self, _: Transformer) -> tuple[Collected, ...]:
        """Their gradient."""
        return (Collected(SCORES, ADDED),)


def added(run: Run) -> Run:
    """Attention to whose scores others are added in place: both stay until it is done, and gradients are added up."""
    scores = f"{ATTENTION}.scores"
    place = run.order.index(scores) + 1
    later = frozenset(run.order[place + 1 :])
    pairs = Held("B K G T S")
    return run._replace(
        order=(*run.order[:place], ADDED, *run.order[place:]),
        ahead=tuple(m._replace(held=(*m.held, pairs)) if m.at in later else m for m in run.ahead),
        moments=(*run.moments, Moment(ADDED, (pairs, pairs))),
    )
