"""Classes behind a product, an activation and a norm, as the classes of ModernBERT have them, and their loss."""

from __future__ import annotations

from tfacct.architecture.parts import Norm, Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.kept import Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.transformers_encoders import Predicting, loss_of_classes, positions_of
from tfacct.profiles.transformers_layernorms import layer
from tfacct.profiles.transformers_parts import ACTIVATIONS, activated

READ = "final_norm"
"""What the product in front of the classes reads."""


@record
class Classifying(Predicting):
    """Such an encoder with scores of classes, of each sequence's first position or of every position. The loss is taken
    in the pass's dtype."""

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "work"

    def logits(self, shape: Transformer) -> Held:
        """Scores of the classes."""
        return Held(f"{positions_of(shape)} Y")

    def back(self, shape: Transformer) -> Run:
        """The final norm, what is in front of the classes, and the loss."""
        loss = loss_of_classes(self.logits(shape), READ)._replace(ahead=())  # what waits in the body is gone by then
        return joined(self._final(shape), self._pooled(shape), loss)

    def _pooled(self, shape: Transformer) -> Run:
        part, each = shape.pooler, positions_of(shape)
        if not isinstance(part, Pooler) or part.reads in ("mean", "end") or part.activation not in ACTIVATIONS:
            raise ConfigError(f"{self.name}: no rule for this pooler")
        first, weight, act, classes = "pooler.first", "pooler.weight", "pooler.act", "classifier.weight"
        vector, row = Held(f"{each} D"), Held("B T D")
        shaped = Norm(hidden=part.hidden, kind="layer", learned="both" if part.norm_shift else "scale")
        behind = layer("pooler.norm", f"{act}.result", shaped, full=self.full)
        normed = Run(
            behind.order,
            tuple(Kept(x.path, x.spec.replace("B T", each), x.by, x.role, x.times) for x in behind.kept),
            (Moment(behind.order[-1], (vector._replace(times=2),)),),
        )
        transform = Run(
            (first, weight, act),
            (Kept(READ, "B T D", by=(weight,)), *activated(act, "pooler", part.activation, vector.spec, behind.order)),
            (
                *((Moment(first, (row, vector)),) if each == "B" else ()),
                Moment(weight, (vector._replace(times=2),)),
                Moment(act, (vector._replace(times=ACTIVATIONS[part.activation].holds),)),
            ),
        )
        scores = Run(
            (classes,),
            (Kept("pooler.norm", vector.spec, by=(classes,)),),
            (Moment(classes, (self.logits(shape), vector)),),
        )
        return joined(transform, normed, scores)
