"""How the transformers encoders of BERT's kind train whose norms stand in front of parts, and behind all blocks:
those of RoBERTa's that are made so.
"""

from __future__ import annotations

from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.kept import Held, Kept, Moment, Run, joined
from tfacct.profiles.transformers_encoders import Encoders, loss_of_classes, masked_head
from tfacct.profiles.transformers_parts import STREAM, dropout

READ = "final_norm"
"""What the head reads, or the classes."""
ROW = Held("B T D")


@record
class Prenormed(Encoders):
    """Such an encoder with one kind of attention."""

    def _waiting(self, *, network: bool = False) -> tuple[Held, ...]:
        return () if network and self.habits.whole_network else Encoders._waiting(self, network=network)

    def dropped(self, at: str) -> Run:
        """The dropout behind a part, where the class has one there, and the sum with the stream."""
        if not self.habits.whole_network or at == paths.in_every(paths.BLOCKS, "attn"):
            return Encoders.dropped(self, at)
        name = self.drop(at, attends=False)
        return Run((name,), (), (), (Moment(name, (Held("B T D", times=2),)),))

    def front(self, shape: Transformer) -> Run:
        """Token ids, segments, positions, and the norm of their sum, where there is one."""
        if shape.positions is None or shape.embed.scaled:
            raise ConfigError(f"{self.name}: no rule for this front of an encoder")
        normed = Run() if shape.embed_norm is None else self.embeddings_normed(shape.embed_norm)
        mask = dropout("embed.drop") if self.habits.embedding else Run()
        return joined(self.embedded(shape), normed, mask)

    def back(self, shape: Transformer) -> Run:
        """The final norm, the head that predicts masked tokens, or classes, and the loss."""
        loss = loss_of_classes(self.logits(shape), READ)
        behind = masked_head(self, shape.head, READ) if shape.classes is None else self._classes(shape)
        return joined(self._final(shape), _reading(behind), loss)


def _reading(run: Run) -> Run:
    """What stands behind the final norm reads what that gave, not the stream."""
    kept = tuple(line if line.path != STREAM else Kept(READ, line.spec, line.by, line.role) for line in run.kept)
    return run._replace(kept=kept)
