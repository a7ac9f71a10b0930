"""How the transformers encoders of BERT's kind train: sums normed behind each part, a head that predicts masked tokens.

Every token sees all others, so no mask is made. The loss is taken in the pass's dtype.
"""

from __future__ import annotations

from tfacct.architecture.parts import FeedForward, Head, Norm, Part, Pooler
from tfacct.architecture.transformer import Transformer
from tfacct.base.errors import ConfigError
from tfacct.base.record import record
from tfacct.ledger import paths
from tfacct.ledger.einsum import Size
from tfacct.ledger.kept import Handed, Held, Kept, Moment, Role, Run, joined
from tfacct.profiles.transformers import Transformers
from tfacct.profiles.transformers_parts import ACTIVATIONS, STREAM, activated, dropout, norm

ROW = Held("B T D")
TRANSFORM = "lm_head.transform"
"""The product in front of the head's."""


CHOICE, SHIFTED = "loss.choose", ("loss.targets", "loss.padding")
"""The loss's choice of each target; a decoder's targets, and what they are shifted from."""
POOLED = {"tanh": "result", "relu": "result", "gelu": "in"}
"""What a pooler's activation keeps."""


@record
class Encoders(Transformers):
    """A transformers encoder with one kind of attention."""

    @property
    def sees_all(self) -> bool:
        """True: every token sees all others."""
        return True

    @property
    def encodes(self) -> bool:
        """True: segments, a head's transform and norms of sums have rules."""
        return True

    @property
    def loss(self) -> Role:
        """Role of the loss."""
        return "work"

    def part(self, at: str, reads: str, part: Part, *, waits: bool = False) -> Run:
        """What a part of a block keeps."""
        run = Transformers.part(self, at, reads, part, waits=waits)
        return _renamed(run, f"{at}.act", f"{at}.up_proj.act") if type(part) is FeedForward else run

    def dropped(self, at: str) -> Run:
        """The dropout behind a part, in the module of its last product."""
        attends = at == paths.in_every(paths.BLOCKS, "attn")
        name = self.drop(at, attends=attends)
        drops = self.habits.residual or (self.habits.network and not attends)
        mask = dropout(name) if drops else Run((name,))
        return joined(mask, Run((), (), (), (Moment(name, (Held("B T D", times=2),)),)))

    def drop(self, at: str, *, attends: bool) -> str:
        """Name of this dropout."""
        return f"{at}.{'o_proj' if attends else 'down_proj'}.drop"

    def front(self, shape: Transformer) -> Run:
        """Token ids, segments, positions, and the norm of their sum."""
        if shape.positions is None or shape.embed_norm is None or shape.embed.scaled:
            raise ConfigError(f"{self.name}: no rule for this front of an encoder")
        mask = dropout("embed_norm.drop") if self.habits.embedding else Run()
        return joined(self.embedded(shape), self.embeddings_normed(shape.embed_norm), mask)

    def embedded(self, shape: Transformer) -> Run:
        """Token ids, segments, positions and tasks: what embeddings are summed of."""
        own = self.habits.own_positions  # of each sequence, from a mask of its own
        kept = [Kept("tokens", "B T", by=("embed", CHOICE), role="index")]
        moments = [Moment("embed", ())]
        if shape.segments is not None:
            each = "B T" if own or shape.positions is None else "T"
            moments.append(Moment("type_embed.weight", ()))
            kept.append(Kept("segments", each, by=("type_embed.weight",), role="index"))
        if shape.positions is not None:
            moments.append(Moment("pos_embed", (Held("T D"),) if self.batch > 1 and not own else ()))
            if own:
                kept.append(Kept("positions", "B T", by=("pos_embed",), role="index"))
        if shape.tasks is not None:
            moments.append(Moment("task_embed", ()))
            kept.append(Kept("tasks", "B T", by=("task_embed",), role="index"))
        return Run(tuple([moment.at for moment in moments]), tuple(kept), tuple(moments))

    def embeddings_normed(self, part: Norm) -> Run:
        """The norm of their sum, which nothing else reads."""
        run = norm("embed_norm", "embed.sum", part, full=self.full)
        return run._replace(moments=(Moment(run.order[0], (ROW,)),), ahead=())

    def logits(self, shape: Transformer) -> Held:
        """Logits of the vocabulary, or scores of the classes."""
        return Held("B T V" if shape.classes is None else f"{positions_of(shape)} Y")

    def back(self, shape: Transformer) -> Run:
        """The head that predicts masked tokens, or classes, and the loss."""
        if shape.final_norm is not None:
            raise ConfigError(f"{self.name}: no rule for this head of an encoder")
        loss = loss_of_classes(self.logits(shape), STREAM)
        if shape.classes is None:
            return joined(masked_head(self, shape.head), loss)
        if self.habits.classifier:
            read = Held(f"{positions_of(shape)} D", path="classifier.dropped")  # a frozen classifier does not keep it
            loss = loss._replace(ahead=tuple(each._replace(held=(*each.held, read)) for each in loss.ahead))
        return joined(self._classes(shape), loss)

    def _classes(self, shape: Transformer) -> Run:
        """Scores of each position, or of each sequence behind a product of its first position's vector."""
        each, weight, drop = positions_of(shape), "classifier.weight", "classifier.drop"
        vector = Held(f"{each} D")
        reads, pooled = STREAM, Run()
        if shape.pooler is not None:
            pooled, reads = self._pooled(shape.pooler), "pooler.act.result"
        kept = [Kept(reads, vector.spec, by=(weight,))]
        if self.habits.classifier:
            mask = Kept(drop, vector.spec, by=(drop,), role="flag")
            kept = [mask, Kept("classifier.dropped", vector.spec, by=(weight,))]
        moments = (Moment(drop, (vector._replace(times=2),)), Moment(weight, (Held(f"{each} Y"), vector)))
        return joined(pooled, Run((drop, weight), tuple(kept), moments))

    def _pooled(self, pooler: Part) -> Run:
        """A product of the first position's vector, which is a view of the stream, and its activation."""
        if not isinstance(pooler, Pooler) or pooler.reads != "first" or pooler.activation not in POOLED:
            raise ConfigError(f"{self.name}: no rule for this pooler")
        drop, weight, act = "pooler.drop", "pooler.weight", "pooler.act"
        kept = [Kept(f"{act}.result" if POOLED[pooler.activation] == "result" else "pooler", "B D", by=(act,))]
        if self.habits.classifier and self.habits.drops_first:
            kept += [Kept(drop, "B D", by=(drop,), role="flag"), Kept("pooler.dropped", "B D", by=(weight,))]
        else:
            kept.append(Kept(STREAM, "B T D", by=(weight,)))
        both = Held("B D", times=2)
        moments = (Moment(drop, (ROW, Held("B D"))), Moment(weight, (both,)), Moment(act, (both,)))
        return Run((drop, weight, act), tuple(kept), moments)

    def waiting(self, _: Transformer) -> tuple[Held, ...]:
        """Nothing is held beside what blocks keep."""
        return ()

    def handed(self, _: Transformer) -> tuple[Handed, ...]:
        """Blocks are handed the stream alone."""
        return ()

    def buffers(self, shape: Transformer) -> tuple[Kept, ...]:
        """Numbers of all positions, and their segments."""
        names = ("positions", "segments") if shape.segments is not None else ("positions",)
        return tuple(Kept(name, "P", by=(), role="index") for name in names)


@record
class Bidirectional(Transformers):
    """A transformers encoder of a decoder's blocks, in which every token sees all others: no mask is made, and the loss
    is that of every position."""

    @property
    def sees_all(self) -> bool:
        """True: every token sees all others."""
        return True

    def front(self, shape: Transformer) -> Run:
        """A decoder's, whose tokens are the loss's targets too."""
        run = Transformers.front(self, shape)
        tokens, *others = run.kept
        return run._replace(kept=(Kept(tokens.path, tokens.spec, (*tokens.by, CHOICE), tokens.role), *others))

    def back(self, shape: Transformer) -> Run:
        """A decoder's, without targets that are shifted."""
        run = Transformers.back(self, shape)
        return run._replace(kept=tuple(line for line in run.kept if line.path not in SHIFTED))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """A decoder's, without a mask."""
        return self._unmasked().waiting(shape)

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """A decoder's, without a mask."""
        return self._unmasked().handed(shape)

    def _unmasked(self) -> Transformers:
        return Transformers("sdpa", self.habits, self.full, self.batch, self.tokens)


@record
class Predicting(Bidirectional):
    """Such an encoder whose head has a transform, as that of ModernBERT: windows see both ways, and in the first block
    attention may read the embeddings' norm itself. Only windows have a mask, from half of one on."""

    @property
    def encodes(self) -> bool:
        """True: a head's transform, and a first block without a norm, have rules."""
        return True

    def reaches(self, window: Size | None) -> bool:
        """True if a sequence is as long as half a window, without its middle."""
        return window is not None and bool(self.tokens >= window // 2)

    def back(self, shape: Transformer) -> Run:
        """The final norm, the head's transform, and the loss of every position."""
        loss = self._loss_of(shape)
        kept = tuple(line for line in loss.kept if line.path not in SHIFTED)
        head = masked_head(self, shape.head, "final_norm")._replace(ahead=())  # what waits in the body is gone by then
        return joined(self._final(shape), head, loss._replace(kept=kept))

    def waiting(self, shape: Transformer) -> tuple[Held, ...]:
        """Numbers of the positions, and the windows' mask."""
        return (Held("T", "index"), *(held for held, _ in self.handed(shape)))

    def handed(self, shape: Transformer) -> tuple[Handed, ...]:
        """The windows' mask."""
        windowed = [(stack.block.window, at[0]) for stack, at in zip(shape.stacks, shape.numbers(), strict=True)]
        windows = [(window, first) for window, first in windowed if window is not None]
        if not windows:
            raise ConfigError(f"{self.name}: no rule for windows that no block has")
        mask = Held("T S", "flag") if self.attention == "sdpa" else Held("B T S")
        return (Handed(mask, min(first for _, first in windows)),) if self.reaches(windows[0][0]) else ()


def masked_head(profile: Transformers, head: Head | None, reads: str = STREAM) -> Run:
    """The head's transform, its activation and norm, and the logits."""
    if head is None or head.transform is None or head.transform not in ACTIVATIONS:
        raise ConfigError(f"{profile.name}: no rule for this head of an encoder")
    weight, act, at = f"{TRANSFORM}.weight", f"{TRANSFORM}.act", "lm_head.norm"
    holds = Held("B T D", times=ACTIVATIONS[head.transform].holds)
    part = Norm(hidden=head.hidden, kind="layer", learned="both" if head.norm_bias else "scale")
    behind = norm(at, f"{act}.result", part, full=profile.full)
    transform = Run(
        (weight, act),
        (
            Kept(reads, "B T D", by=(weight,)),
            *activated(act, TRANSFORM, head.transform, "B T D", behind.order),
        ),
        (Moment(weight, (Held("B T D", times=2),)), Moment(act, (holds,))),
    )
    logits = Run(
        ("lm_head.weight",),
        (Kept(at, "B T D", by=("lm_head.weight",)),),
        (Moment("lm_head.weight", (Held("B T V"), ROW)),),
    )
    return joined(transform, behind, logits)


def loss_of_classes(logits: Held, read: str) -> Run:
    """The loss of some scores in the pass's dtype. `read`: what the body gave, which the caller has meanwhile."""
    stays = (logits, Held("B T D", path=read), Held(""))
    return Run(
        ("loss.softmax", "loss.choose", "loss.mean"),
        (
            Kept("loss.log_probabilities", logits.spec, by=("loss.softmax",)),
            Kept("loss.weight", "", by=("loss.choose",)),
        ),
        (Moment("loss.softmax", (logits._replace(times=2),)),),
        (Moment("loss.mean", stays),),
    )


def positions_of(shape: Transformer) -> str:
    """Axes of what classes are scored of: every position, or every sequence."""
    return "B" if shape.classes is not None and shape.classes.pooled else "B T"


def _renamed(run: Run, old: str, new: str) -> Run:
    """A run with another name for an operation."""

    def name(one: str) -> str:
        return new if one == old else one

    kept = tuple(Kept(line.path, line.spec, tuple(map(name, line.by)), line.role, line.times) for line in run.kept)
    moments, ahead = (tuple(m._replace(at=name(m.at)) for m in every) for every in (run.moments, run.ahead))
    return run._replace(order=tuple(map(name, run.order)), kept=kept, moments=moments, ahead=ahead)
