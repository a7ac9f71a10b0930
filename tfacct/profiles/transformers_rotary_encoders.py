"""How the encoders of Nomic BERT's kind train: BERT's norms of sums, around attention that turns and gated networks."""

from __future__ import annotations

from tfacct.architecture.parts import FeedForward, Norm, Part
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.kept import ROTARY, Handed, Held, Kept, Moment, Run, joined
from tfacct.profiles.transformers import Transformers
from tfacct.profiles.transformers_encoders import Encoders
from tfacct.profiles.transformers_parts import dropout

POSITIONS = Held("T", "index")


@record
class RotaryEncoders(Encoders):
    """A transformers encoder whose blocks turn queries and keys. Dropouts and activations are modules of their own."""

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps."""
        run = Transformers.part(self, at, reads, part, waits=waits)
        return self._dropped_inside(run, at) if type(part) is FeedForward and self.habits.drops_product else run

    def _dropped_inside(self, run: Run, at: str) -> Run:
        """A gated network of which numbers are dropped in front of its last product."""
        product, drop, down = f"{at}.product", f"{at}.product.drop", f"{at}.down_proj.weight"
        kept: list[Kept] = [line for line in run.kept if line.path != product]
        kept += [Kept(drop, "B T F", by=(drop,), role="flag"), Kept(f"{product}.dropped", "B T F", by=(down,))]
        place = run.order.index(down)
        moment = Moment(drop, (Held("B T F", times=2),))
        return run._replace(
            order=(*run.order[:place], drop, *run.order[place:]),
            kept=tuple(kept),
            moments=(run.moments[0], moment, *run.moments[1:]),
        )

    def dropped(self, at: str) -> Run:
        """The dropout behind a part, a module of the block: what it drops numbers of stays until they are summed."""
        run = Transformers.dropped(self, at)
        ahead = (Moment(f"{at}.drop", (Held("B T D", times=3),)),)
        return run._replace(ahead=ahead) if self.habits.residual else run

    def summed(self, at: str, reads: str, part: Norm) -> Run:
        """The norm of a sum. Beside it attention's result is still there, and no other."""
        run = Encoders.summed(self, at, reads, part)
        if at == paths.in_every(paths.BLOCKS, "attn_norm"):
            return run
        return run._replace(ahead=tuple(moment._replace(held=moment.held[:-1]) for moment in run.ahead))

    def front(self, shape: Transformer) -> Run:
        """Token ids, segments, the norm of their sum, and the angles that all blocks share."""
        if shape.positions is not None or shape.embed_norm is None or shape.embed.scaled:
            raise ConfigError(f"{self.name}: no rule for this front of an encoder")
        mask = dropout("embed_norm.drop") if self.habits.embedding else Run()
        angles = Run((ROTARY,), tuple(Kept(name, "T H", by=(ROTARY,)) for name in ("cos", "sin")))
        return joined(self.embedded(shape), self.embeddings_normed(shape.embed_norm), mask, angles)

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """Numbers of the positions."""
        return (POSITIONS,)

    def handed(self, _: Transformer) -> tuple[Handed, ...]:
        """The same, in classes that hand them on."""
        return (Handed(POSITIONS),) if self.habits.stores_positions else ()

    def buffers(self, _: Transformer) -> tuple[Kept, ...]:
        """The angles' frequencies, twice; numbers of all positions and their segments, where the class stores them."""
        frequencies = (Kept("frequencies", "H", by=(), role="full"),)
        stored = ("positions", "segments") if self.habits.stores_positions else ()
        rows = tuple(Kept(name, "P", by=(), role="index") for name in stored)
        return (*frequencies, *rows)
