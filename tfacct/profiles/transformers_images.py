"""How the transformers encoders of images train, with scores of classes: ViT and what is made of it.

A batch is images in fp32, as an image processor makes them; the model casts them to its own dtype and keeps the copy.
"""

from __future__ import annotations

from tfacct.architecture.parts import Patches
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger.kept import Handed, Held, Kept, Moment, Role, Run, joined
from tfacct.ledger.workload import PATCHES
from tfacct.profiles.transformers_encoders import CHOICE, Bidirectional, loss_of_classes
from tfacct.profiles.transformers_parts import dropout

PIXELS = f"B {PATCHES} Cc Px"
PRODUCT, CLASS, FURTHER = "embed.project.weight", "embed.class.weight", "embed.further.weight"
READ = "final_norm"
"""What the classes are scored of: its first position."""


@record
class Images(Bidirectional):
    """Such an encoder, its norms in front of the parts, with one kind of attention."""

    @property
    def encodes(self) -> bool:
        """True: classes without a language model's head have rules."""
        return True

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "work"

    def logits(self, _: Transformer) -> Held:
        """Scores of the classes."""
        return Held("B Y")

    def front(self, shape: Transformer) -> Run:
        """Patches behind learned tokens, and a position for each of them."""
        embed, positions = shape.embed, shape.positions
        if not isinstance(embed, Patches) or embed.front is None or embed.norm_eps is not None or positions is None:
            raise ConfigError(f"{self.name}: no rule for this front of an encoder of images")
        if shape.embed_norm is not None or embed.masked:
            raise ConfigError(f"{self.name}: no rule for a norm of patches, or a token that hides them")
        own = Kept("tokens", PIXELS, by=(PRODUCT,), role="full") if self.full else Kept("pixels", PIXELS, by=(PRODUCT,))
        labels = Kept("labels", "B", by=("labels", CHOICE), role="index")  # the caller's, to the end
        further = (FURTHER,) if embed.taught or embed.further is not None else ()
        order = ("labels", PRODUCT, CLASS, *further, "pos_embed")
        moments = tuple(Moment(name, ()) for name in order[1:])
        mask = dropout("pos_embed.drop") if self.habits.embedding else Run()
        return joined(Run(order, (own, labels), moments), mask)

    def back(self, shape: Transformer) -> Run:
        """The final norm, classes of the first position's vector, and the loss."""
        self.check_back(shape)
        first, weight, vector, row = "classifier.first", "classifier.weight", Held("B D"), Held("B T D")
        scores = Run(
            (first, weight),
            (Kept(READ, row.spec, by=(weight,)),),
            (Moment(first, (row, vector)), Moment(weight, (self.logits(shape), vector))),
        )
        return joined(self._final(shape), scores, loss_of_classes(self.logits(shape), READ))

    def check_back(self, shape: Transformer) -> None:
        """Raise ConfigError for other ends than classes of the first position's vector."""
        if shape.classes is None or not shape.classes.pooled or shape.classes.taught or shape.pooler is not None:
            raise ConfigError(f"{self.name}: no rule for what is behind these blocks")

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """Nothing: the embeddings, which the class holds while blocks run, are what the first block keeps."""
        return ()

    def views(self, _: Transformer) -> frozenset[str]:
        """Of one image, those of learned tokens, which are slices of the stream's."""
        return frozenset((CLASS, FURTHER) if self.batch == 1 else ())

    def handed(self, _: Transformer) -> tuple[Handed, ...]:
        """Blocks are handed the stream alone."""
        return ()

    def buffers(self, _: Transformer) -> tuple[Kept, ...]:
        """The batch, where the pass has a copy of it in its own dtype."""
        return () if self.full else (Kept("batch", PIXELS, by=(), role="full"),)
