"""How encoders train whose tables are narrower than the model: ELECTRA's, and ALBERT's, where blocks share weights.

What a product behind the tables reads is as narrow as they are, and so is what the head's transform gives.
"""

from __future__ import annotations

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.kept import Held, Kept, Moment, Run, joined
from tfacct.profiles.pairs import named
from tfacct.profiles.transformers_encoders import TRANSFORM, Encoders, loss_of_classes, masked_head
from tfacct.profiles.transformers_parts import STREAM

NARROW = {"D": "De"}
VECTOR = Held("B T De")
PROJECT = "embed.project.weight"


@record
class NarrowEncoders(Encoders):
    """An encoder whose tables are narrower than the model."""

    def front(self, shape: Transformer) -> Run:
        """Tables, their norm and its dropout, all narrow, and the product behind them."""
        if not shape.embed.late:
            raise ConfigError(f"{self.name}: no rule for this front of an encoder")
        tables = named(Encoders.front(self, shape), NARROW)
        narrow = tuple(moment._replace(alone=True) for moment in tables.moments)
        reads = Kept("embed_norm.dropped" if self.habits.embedding else "embed_norm", VECTOR.spec, by=(PROJECT,))
        return joined(tables._replace(moments=narrow), Run((PROJECT,), (reads,), (Moment(PROJECT, (VECTOR,)),)))

    def back(self, shape: Transformer) -> Run:
        """The head, whose transform makes the stream narrow."""
        if shape.classes is not None or shape.final_norm is not None:
            return Encoders.back(self, shape)
        head, weight = named(masked_head(self, shape.head), NARROW), f"{TRANSFORM}.weight"
        kept = tuple(Kept(k.path, "B T D", k.by) if k.path == STREAM else k for k in head.kept)
        both = (VECTOR, Held("B T D"))
        moments = tuple(m._replace(held=both) if m.at == weight else m for m in head.moments)
        return joined(head._replace(kept=kept, moments=moments), loss_of_classes(self.logits(shape), STREAM))


@record
class SharingEncoders(NarrowEncoders):
    """ALBERT, whose blocks run with the weights of one; numbers of attention's result alone are dropped."""

    def _waiting(self, *, network: bool = False) -> tuple[Held, ...]:
        return () if network else NarrowEncoders._waiting(self)

    def dropped(self, at: str) -> Run:
        """The dropout behind attention, in the module of its last product; none behind the network."""
        if at == paths.in_every(paths.BLOCKS, "attn"):
            return NarrowEncoders.dropped(self, at)
        name = f"{at}.sum"
        return Run((name,), (), (), (Moment(name, (Held("B T D", times=2),)),))
