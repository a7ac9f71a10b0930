"""What is said of models with attention and of models without: a sentence about keys is true of the first only."""

from __future__ import annotations

from collections.abc import Sequence

from tfacct.blocks import MixerBlock
from tfacct.subject import Subject


def attends(subjects: Sequence[Subject]) -> bool:
    """Whether one of the models has attention; true of no models, which is said of any."""
    return not subjects or any(subject.architecture.attention is not None for subject in subjects)


def mixes(subjects: Sequence[Subject]) -> bool:
    """Whether one of the models has mixers."""
    return any(isinstance(stack.block, MixerBlock) for subject in subjects for stack in subject.architecture.stacks)


def kept(subjects: Sequence[Subject]) -> str:
    """What is kept between steps, by name."""
    return "KV cache" if attends(subjects) else "state"


def attention_words(subjects: Sequence[Subject], masked: bool) -> str:
    """Which query–key pairs were counted, as a clause of a sentence; nothing where there are none."""
    if not attends(subjects):
        return " no attention, so --masked leaves nothing out;" if masked else ""
    return " of attention only the pairs that the causal mask keeps;" if masked else " full T × S attention;"


def pairs_convention(subjects: Sequence[Subject], masked: bool) -> str:
    """The same for the JSON."""
    if not attends(subjects):
        return ""
    return " only the query-key pairs the causal mask keeps;" if masked else " full T x S attention;"


def left_out(subjects: Sequence[Subject], *more: str) -> str:
    """The work that is no product."""
    words = ["norms", *(["softmax"] if attends(subjects) else []), "activations"]
    words += ["rotary"] if attends(subjects) else []
    words += ["the recurrence of mixers"] if mixes(subjects) else []
    return f"Left out: {', '.join([*words, 'additions', 'embedding look-ups', *more])}."


def state_notes(subjects: Sequence[Subject]) -> list[str]:
    """Says whose cache is no cache but a state of fixed size."""
    without = [subject.name for subject in subjects if subject.architecture.attention is None]
    if not without:
        return []
    size = "a state of one size, the same at every context: a further token adds nothing"
    if len(without) == len(subjects):
        return [f"No attention, so no keys and values: every block keeps {size}."]
    who = f"{', '.join(without)} keeps" if len(without) == 1 else f"{', '.join(without)} keep"
    return [f"{who} no keys and values, but {size}."]
