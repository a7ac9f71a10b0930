"""Pages of an engine's KV cache: layers of a kind in groups of equal size, attention blocks as large as a state.

vLLM's `v1/core/kv_cache_utils.py`, `v1/kv_cache_interface.py`; `models/config.py`, from 0.20 `platforms/interface.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import lcm
from typing import Any, Literal, NamedTuple, TypedDict

from tfacct.accounts.memory import largest_that_fits
from tfacct.architecture.parts import Attention, LatentAttention
from tfacct.base.errors import UsageError
from tfacct.base.record import record
from tfacct.engines.profiles import engine
from tfacct.ledger.einsum import axis_names, size
from tfacct.ledger.evaluated import TAPS, TOKENS, is_fixed
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import WINDOW, State
from tfacct.ledger.storage import StatePage, Width
from tfacct.ledger.workload import LARGEST, Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.rank_memory import pool_facts

Kind = Literal["full", "window", "chunk", "state"]
MambaMode = Literal["none", "align", "all"]
"""States that prefix caching stores: none, one more for each request, or one for each block."""
BLOCK = 16
"""Tokens of a block by default."""
ALIGNMENT, LATENT_ALIGNMENT = 16, 64
"""Tokens that an attention block next to states is a multiple of; of latent attention."""
FP32_STATES = ("kimi_linear", "qwen3_5", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_5_text")
"""Families whose recurrent states are in fp32 whatever the dtype: vLLM's models/config.py, kda_state_dtype."""


VALUE = 2
"""Bytes of an element in the dtype of a model in bf16."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


class CacheLayers(NamedTuple):
    """Layers that cache alike: bytes of one token, or of a state, in one layer on one rank; keys of a window or
    chunk."""

    kind: Kind
    layers: int
    bytes: int
    window: int = 0


class EngineGroup(TypedDict):
    """Layers of a kind, and their pages."""

    kind: Kind
    layers: int
    page_bytes: int
    pages_per_request: int


@record
class Pages:
    """Pages of a pool. `layers_per_group` layers share a block of `block_size` tokens."""

    block_size: int
    blocks: int
    layers_per_group: int
    groups: tuple[EngineGroup, ...]

    @property
    def group_counts(self) -> list[int]:
        """Numbers of groups of the kinds of layers; the last one of a kind may have padding."""
        return [ceil_div(one["layers"], self.layers_per_group) for one in self.groups]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block in all layers of a group."""
        return self.groups[0]["page_bytes"] * self.layers_per_group

    @property
    def pages_per_request(self) -> int:
        """Blocks of one request of the longest length."""
        both = zip(self.group_counts, self.groups, strict=True)
        return sum(count * one["pages_per_request"] for count, one in both)

    @property
    def concurrency(self) -> float:
        """Requests of the longest length at once."""
        return self.blocks / self.pages_per_request

    @property
    def tokens(self) -> int:
        """Tokens that the pool has blocks for in every group."""
        return self.blocks // sum(self.group_counts) * self.block_size

    def tokens_of_requests(self, length: int) -> int:
        """Tokens of the requests of this length that the blocks hold."""
        return self.blocks * length // self.pages_per_request

    def largest_length(self, paged: Callable[[int], Pages], most: int) -> int:
        """The longest request, up to `most` tokens, that these blocks hold, by pages of requests of any length."""
        return largest_that_fits(lambda length: paged(length).pages_per_request, self.blocks, most)


def cache_layers(
    model: LoadedModel, cached: Width, value_bytes: int = VALUE, *, tp: int = 1, recurrent: int | None = None
) -> list[CacheLayers]:
    """Kinds of layers of a model, as one of `tp` ranks caches them. `cached`: how keys and values are stored;
    `value_bytes`: of the model's dtype, which a convolution's inputs have; `recurrent`: bytes of an element of a
    recurrent state, if not those of its config. Raises UsageError."""
    recurrent = recurrent or _state_bytes(model, value_bytes)
    found: dict[tuple[Kind, int, int], int] = {}
    chunked = any(isinstance(part, Attention) and part.mask == "chunks" for part in model.architecture.attentions)
    for group in model.ledger.groups:
        states = [line for line in group.lines if isinstance(line, State)]
        growing = [line for line in states if not is_fixed(line)]
        if any(axis in TOKENS - {"S"} for line in growing for axis in axis_names(line.spec)):
            raise UsageError(f"{model.name}: pages of compressed or encoded tokens are not supported")
        if growing:
            window = int(group.axes.get(WINDOW, 0))
            kind: Kind = "full" if not window else "chunk" if chunked else "window"
            key = kind, sum(_elements(line, group, tp) * cached.bits for line in growing) // 8, window
            found[key] = found.get(key, 0) + int(group.count)
        if fixed := [line for line in states if is_fixed(line)]:
            widths = (value_bytes if TAPS in axis_names(line.spec) else recurrent for line in fixed)
            each = (_elements(line, group, tp) * width for line, width in zip(fixed, widths, strict=True))
            key = "state", sum(each), 0
            found[key] = found.get(key, 0) + int(group.count)
    return [CacheLayers(kind, layers, each, window) for (kind, each, window), layers in found.items()]


def _elements(line: State, group: Group, tp: int) -> int:
    """Elements of one token of one sequence, or of a state of one, on a rank: of a convolution, the inputs of all taps
    but one. Ranks share the heads of keys and values, or have one alike, and a state; not a latent."""
    axes = axis_names(line.spec)
    at = {**group.axes, "B": 1, "S": 1}
    if "K" in axes:
        at["K"] = ceil_div(int(at["K"]), tp)
    elements = int(size(at, axes))
    if TAPS in axes:
        elements = elements // int(at[TAPS]) * (int(at[TAPS]) - 1)
    return elements if "S" in axes else elements // tp


def _state_bytes(model: LoadedModel, value_bytes: int) -> int:
    """Bytes of an element of a recurrent state: as the config says, 4 in some classes, else as the model's dtype."""
    named = str(model.raw.get("mamba_ssm_dtype", model.raw.get("mamba_ssm_cache_dtype", "")))
    return 4 if named.endswith("float32") or model.family in FP32_STATES else value_bytes


def alignment_of(model: LoadedModel) -> int:
    """Tokens that an attention block next to states is a multiple of."""
    return LATENT_ALIGNMENT if model.architecture.having(LatentAttention) else ALIGNMENT


def aligned(model: LoadedModel, cached: Width) -> Width:
    """How a model with states stores its cache: in pages of its attention blocks, each layer's states in one. Raises
    UsageError."""
    found = _hybrid_pages(model, cached, 0)(1)
    page = found.groups[0]["page_bytes"]
    fixed = [
        (line, group)
        for group in model.ledger.groups
        for line in group.lines
        if isinstance(line, State) and is_fixed(line)
    ]
    convolutions = {_elements(line, group, 1) * VALUE for line, group in fixed if TAPS in axis_names(line.spec)}
    alone = all(TAPS in axis_names(line.spec) for line, _ in fixed)
    taken = page if alone else max(convolutions, default=0)
    dtype = "fp32" if _state_bytes(model, VALUE) == 4 else "bf16"
    return replace(cached, page=found.block_size, state_page=StatePage(page, taken, dtype))


def _hybrid_pages(model: LoadedModel, cached: Width, free: int) -> Callable[[int], Pages]:
    """Pages of `free` bytes, by the tokens of a request, of a model with states, as the newest vLLM has them. Raises
    UsageError."""
    layers, ratio = cache_layers(model, cached), engine("vllm").profile().padding_ratio
    alignment = alignment_of(model)
    return lambda length: pages(layers, free, Paging(length, length, ratio, cached.page, alignment))


def requests_in_pages(model: LoadedModel, cached: Width, free: int) -> Callable[[int], int]:
    """The number of requests of so many tokens of a model with states that pages of `free` bytes hold."""
    paged = _hybrid_pages(model, cached, free)
    return lambda length: int(paged(length).concurrency)


def hybrid_page_facts(model: LoadedModel, work: Workload, cached: Width, free: int | None) -> dict[str, Any]:
    """Pages of a model with states, whose attention blocks are as large as a state. With `free`, the bytes that the
    weights leave, also the blocks, tokens and requests of this context. Raises UsageError."""
    paged = _hybrid_pages(model, cached, free or 0)
    found = paged(work.context)
    facts = {"kv_block": found.block_size, "kv_page_bytes": found.block_bytes}
    if free is None or not found.blocks:
        return facts
    longest = found.largest_length(paged, LARGEST)
    return facts | pool_facts(
        model, work, found.block_bytes, found.blocks, found.tokens, found.pages_per_request, longest
    )


def aligned_block(state: int, token: int, alignment: int = ALIGNMENT) -> int:
    """Tokens of an attention block that is as large as a state.

    >>> aligned_block(state=2_146_304, token=4096), aligned_block(state=2_146_304, token=2048)
    (528, 1056)
    """
    return alignment * ceil_div(state, alignment * token)


class Paging(NamedTuple):
    """How a cache is divided into pages: requests of `length` tokens, `batched` of them at most in a step. `block`:
    tokens of a block, `alignment`: which it is a multiple of next to states. `chunk`: tokens of a state's chunk, which
    it is also a multiple of in mode `all`. `padding_ratio`: see the profiles of vLLM."""

    length: int
    batched: int
    padding_ratio: float = 1.0
    block: int | None = None
    alignment: int = ALIGNMENT
    mode: MambaMode = "none"
    chunk: int = 1


def request_pages(layers: CacheLayers, how: Paging, block: int) -> int:
    """Pages of one group that a request takes in blocks of so many tokens."""
    match layers.kind:
        case "full":
            return ceil_div(how.length, block)
        case "window":
            return ceil_div(min(layers.window - 1 + how.batched, how.length), block) + 1
        case "chunk":
            return ceil_div(min(layers.window + how.batched, how.length), block)
        case "state":
            return {"none": 1, "align": 2, "all": ceil_div(how.length, block)}[how.mode]


def pages(layers: Sequence[CacheLayers], pool: int, how: Paging) -> Pages:
    """Pages of a pool of so many bytes. Raises UsageError for layers whose pages differ in size.

    A model of 32 layers whose tokens take 4 KiB in each:

    >>> found = pages([CacheLayers("full", 32, 4096)], 58 << 30, Paging(8192, 8192, 1.5))
    >>> found.blocks, found.tokens, found.concurrency
    (29696, 475136, 58.0)

    Of Qwen3-Next on two cards, 12 layers of attention and 36 with a state of 548,864 bytes:

    >>> hybrid = [CacheLayers("full", 12, 1024), CacheLayers("state", 36, 548_864)]
    >>> found = pages(hybrid, 47_878_721_024, Paging(262_144, 8192))
    >>> found.block_size, found.blocks, found.tokens, round(found.concurrency, 2)
    (544, 7162, 973760, 14.77)
    """
    token = max((one.bytes for one in layers if one.kind != "state"), default=0)
    states = [one.bytes for one in layers if one.kind == "state"]
    if {one.bytes for one in layers if one.kind != "state"} - {token} or len(set(states)) > 1:
        raise UsageError("layers whose pages differ in size are not supported")
    block = how.block or BLOCK
    if states and token:
        step = how.alignment if how.mode != "all" else lcm(how.alignment, how.chunk)
        block = max(block, aligned_block(states[0], token, step))
    page = token * block if token else states[0]
    most, least = (pick(one.layers for one in layers) for pick in (max, min))
    group = most if most < least * how.padding_ratio else least
    each = (
        EngineGroup(kind=one.kind, layers=one.layers, page_bytes=page, pages_per_request=request_pages(one, how, block))
        for one in layers
    )
    return Pages(block, max(0, pool) // page // group, group, tuple(each))
