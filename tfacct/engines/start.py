"""What an engine allocates on a card at start, as the report and its JSON have it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias, TypedDict

from tfacct.architecture.parts import LatentAttention
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.engines.launch import WIDE, Launch
from tfacct.engines.pages import LayerKind, Pages
from tfacct.engines.profiles import GIB, MIB, printed_tokens
from tfacct.ledger.lines import WINDOW

Reasons: TypeAlias = Iterator[tuple[str, str]]
"""Why a launch is not supported, and what to ask for instead."""
Kind: TypeAlias = Literal["exact", "derived", "estimate"]
MEMORY = "`tfacct memory` counts the model"


class EngineTerm(TypedDict):
    """A term of a card's memory. `low_bytes`, `high_bytes`: the measured or possible range; None if not known.
    `kind`: `derived` for a count by the source of a version that the measured error does not cover."""

    what: str
    bytes: int
    kind: Kind
    low_bytes: int | None
    high_bytes: int | None
    source: str


class EngineInterval(TypedDict):
    """Interval of the cache's tokens: 9 of 10 measured starts lie in it. Errors are shares of the tokens."""

    low: int
    high: int
    starts: int
    versions: str
    median: float
    p90: float
    worst: float


class EngineGroup(TypedDict):
    """Layers of a kind, and their pages."""

    kind: LayerKind
    layers: int
    page_bytes: int
    pages_per_request: int


class CheaperFlag(TypedDict):
    """A flag that leaves more tokens."""

    flag: str
    value: str
    kv_cache_tokens: int


class LogLine(TypedDict):
    """A figure of a log next to what was computed: bytes, tokens or requests."""

    what: str
    printed: float
    computed: float
    agrees: bool


def counted(what: str, size: int, source: str, kind: Kind = "exact") -> EngineTerm:
    """A term that is a count."""
    bound = size if kind == "exact" else None
    return {"what": what, "bytes": size, "kind": kind, "low_bytes": bound, "high_bytes": bound, "source": source}


def estimated(what: str, sizes: Iterable[float], source: str, unit: int = GIB) -> EngineTerm:
    """A term that was measured, or is estimated: the likely size, the smallest and the largest."""
    likely, low, high = (max(0, round(size * unit)) for size in sizes)
    return {"what": what, "bytes": likely, "kind": "estimate", "low_bytes": low, "high_bytes": high, "source": source}


def of_parts(launch: Launch, what: str, parts: Mapping[str, int]) -> EngineTerm:
    """A count of weights or activations, with the GiB of its parts: of the first, and of others from 0.005 on. An
    estimate where kernels repack quantized weights, or quantize activations; derived where no start of the version was
    compared."""
    kind: Kind = "exact" if launch.profile["starts"] else "derived"
    if launch.quantized_experts or launch.storage.name not in (*WIDE, "fp8"):
        kind = "estimate"
    words: list[str] = []
    for part, size in parts.items():
        if not words or size >= GIB // 200:
            name, paren, detail = part.partition(" (")
            words.append(f"{name} {size / GIB:.2f}{paren}{detail}")
    return counted(what, sum(parts.values()), ", ".join(words), kind)


@record
class Start:
    """Memory of the card whose cache is the smallest. `terms`: what is taken before the cache, by the names of a log's
    figures. `lacks`: why it does not start; `others`: flags to try where the engine refuses its own, or `instead` a
    sentence. `pool`: bytes of the cache, 0 without a block, and the `tokens` that fit; `concurrency`: requests of the
    longest length. `measured`: True if starts on as many such cards were. `free`:
    bytes that stay free. `peak_from`: what runs at the peak of activations.

    In a report also `line`, the command of its launch, or of one that starts instead, if one is known; `changes`: flags
    that leave more tokens, each with a sentence; `log`: figures next to what was computed."""

    launch: Launch
    terms: Mapping[str, EngineTerm]
    lacks: str = ""
    others: Sequence[Mapping[str, Any]] = ()
    instead: str = "Use more cards or narrower weights."
    pool: int = 0
    tokens: int = 0
    concurrency: float = 0.0
    measured: bool = False
    free: int | None = None
    peak_from: Literal["sampler", "layer"] | None = None
    pages: Pages | None = None
    line: str | None = None
    changes: Sequence[tuple[CheaperFlag, str]] = ()
    log: Sequence[LogLine] = ()

    def bytes_of(self, name: str) -> int | None:
        """Bytes of a term; None if the engine has none of this name."""
        return self.terms[name]["bytes"] if name in self.terms else None

    @property
    def lines(self) -> list[str]:
        """What its log will say of the cache; nothing where it does not start."""
        profile, length = self.launch.profile, self.launch.length
        tokens = printed_tokens(profile, self.tokens, self.concurrency, length)
        facts = {"tokens": tokens, "length": length, "concurrency": self.concurrency, "mib": self.pool / MIB}
        return [] if self.lacks else [line.format(**facts) for line in profile["log_lines"]]

    @property
    def near(self) -> bool:
        """True if the tokens are an estimate."""
        return self.free is None and not self.launch.pool_given

    @property
    def interval(self) -> dict[str, Any] | None:
        """Tokens at 9 of 10 measured starts, and their errors; None if no such starts were measured."""
        launch, errors = self.launch, self.launch.profile["error"]
        unlike = launch.model.architecture.having(LatentAttention) or launch.has_states or launch.flags.pp > 1
        fp32 = "fp32" in (launch.value_dtype, launch.storage.name)
        if not self.measured or launch.pool_given or unlike or fp32 or self.terms["weights"]["kind"] != "exact":
            return None
        error = round(self.tokens * errors["p90"])
        return {"low": self.tokens - error, "high": self.tokens + error, **errors}

    @property
    def groups(self) -> list[EngineGroup]:
        """Kinds of layers of the cache, and their pages; none for an engine without blocks."""
        pages, length = self.pages, self.launch.length
        found = [] if pages is None else [(one, pages.page_bytes, pages.pages_of(one, length)) for one in pages.layers]
        return [
            {"kind": one.kind, "layers": one.layers, "page_bytes": page, "pages_per_request": taken}
            for one, page, taken in found
        ]


def of_models(launch: Launch) -> Reasons:
    """Reasons of a model or of a card, for every engine."""
    profile, model, card = launch.profile, launch.model, launch.device.architecture or launch.device.name
    name = profile["name"]
    if model.architecture.encoder is not None:
        yield f"encoder-decoders are not supported for {name}", MEMORY
    if model.architecture.head is None or not model.has_cache:
        yield f"models without a head or a cache are not supported for {name}", MEMORY
    if card not in profile["architectures"]:
        yield f"{name} on {card} is not supported", f"another card; {MEMORY}"
    described = {
        "caches of state-space layers": not launch.has_states,
        "caches of sliding windows": not any(WINDOW in group.axes for group in model.ledger.groups),
        "image encoders": model.composite is None,
        "pipeline stages": launch.flags.pp == 1,
    }
    for what in (what for what in profile["not_described"] if not described[what]):
        yield f"{what} are not supported for {name}", MEMORY


def check(launch: Launch, reasons: Reasons) -> None:
    """Raise UsageError with the first of the reasons, if there are any."""
    for why, instead in reasons:
        raise UsageError(f"{launch.model.name}: {why}", instead)
