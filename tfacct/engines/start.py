"""What an engine allocates on a card at start, as the report and its JSON have it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, TypedDict

from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.engines.launch import Launch
from tfacct.engines.pages import Pages
from tfacct.engines.profiles import GIB
from tfacct.ledger.lines import WINDOW

Reasons: TypeAlias = Iterator[tuple[str, str]]
"""Why a launch is not supported, and what to ask for instead."""
MEMORY = "`tfacct memory` counts the model"


class EngineTerm(TypedDict):
    """A term of the memory of a card; `low_bytes` and `high_bytes`: what was seen, or may be; None if not known.
    `kind`: `derived` for a count by the source of a version that the measured error does not cover."""

    what: str
    bytes: int
    kind: Literal["exact", "derived", "estimate"]
    low_bytes: int | None
    high_bytes: int | None
    source: str


def counted(what: str, size: int, source: str, *, sure: bool = True, compared: bool = True) -> EngineTerm:
    """A term that is a count. `sure`: False for one that starts differ from; `compared`: False for a version that
    the measured error does not cover."""
    bound = size if sure and compared else None
    kind: Literal["exact", "derived", "estimate"] = "estimate" if not sure else "exact" if compared else "derived"
    return {"what": what, "bytes": size, "kind": kind, "low_bytes": bound, "high_bytes": bound, "source": source}


def estimated(what: str, sizes: Iterable[float], source: str, unit: int = GIB) -> EngineTerm:
    """A term that was measured, or is estimated: the likely size, the smallest and the largest."""
    likely, low, high = (round(size * unit) for size in sizes)
    return {"what": what, "bytes": likely, "kind": "estimate", "low_bytes": low, "high_bytes": high, "source": source}


@record
class Start:
    """Memory of the card whose cache is the smallest. `terms`: what is taken before the cache, by the names of a log's
    figures. `lacks`: why it does not start. `pool`: bytes of the cache, and the `tokens` that fit; `concurrency`:
    requests of the longest length. `measured`: starts on as many such cards. `free`: bytes that stay free. `peak_from`:
    what runs at the peak of activations. `paged`: pages of the pool by max_model_len; `pages`: of this one. `least`:
    the least that all else takes."""

    terms: Mapping[str, EngineTerm]
    lacks: str = ""
    pool: int = 0
    tokens: int = 0
    concurrency: float = 0.0
    lines: Sequence[str] = ()
    measured: int = 0
    free: int | None = None
    peak_from: Literal["sampler", "layer"] | None = None
    paged: Callable[[int], Pages] | None = None
    pages: Pages | None = None
    least: int = 0

    @property
    def log_lines(self) -> list[str]:
        """Lines of the log that say how much cache there is; none if it does not start."""
        return [] if self.lacks else list(self.lines)


def context(launch: Launch, source: str) -> EngineTerm:
    """CUDA context and what else a process takes before it loads weights."""
    return estimated("CUDA context", launch.engine.facts["context_gib"], source)


def of_models(launch: Launch, name: str, cards: Collection[str]) -> Reasons:
    """Reasons of a model without a cache, or of a card, for the engine of this name."""
    shape, card = launch.model.architecture, launch.device.architecture or launch.device.name
    if shape.encoder is not None:
        yield f"encoder-decoders are not supported for {name}", MEMORY
    if shape.head is None or not launch.model.has_cache:
        yield f"models without a head or a cache are not supported for {name}", MEMORY
    if card not in cards:
        yield f"{name} on {card} is not supported", "choose another card"


def of_plain_models(launch: Launch) -> Reasons:
    """Reasons of a launch of an engine that is described for full attention on NVIDIA's cards alone."""
    name, model = launch.engine.name, launch.model
    yield from of_models(launch, name, launch.engine.facts["architectures"])
    unsupported = {
        "caches of state-space layers": launch.has_states,
        "caches of sliding windows": any(WINDOW in group.axes for group in model.ledger.groups),
        "image encoders": model.composite is not None,
        "pipeline stages": launch.flags.pp > 1,
    }
    for what in filter(unsupported.get, unsupported):
        yield f"{what} are not supported for {name}", MEMORY


def check(launch: Launch, reasons: Reasons) -> None:
    """Raise UsageError with the first of the reasons, if there are any."""
    for why, instead in reasons:
        raise UsageError(f"{launch.model.name}: {why}", instead)
