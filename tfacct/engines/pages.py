"""Pages of vLLM's KV cache: layers of a kind in groups of equal size, attention blocks as large as a state.

`v1/core/kv_cache_utils.py`, `v1/kv_cache_interface.py`; `models/config.py`, from 0.20 `platforms/interface.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import lcm
from typing import Any, Literal, NamedTuple

from tfacct.accounts.memory import largest_that_fits
from tfacct.architecture.parts import Attention, LatentAttention, Mixer
from tfacct.base.errors import UsageError
from tfacct.engines.profiles import profile_of
from tfacct.ledger.einsum import axis_names, size
from tfacct.ledger.evaluated import TOKENS, is_fixed
from tfacct.ledger.groups import Group
from tfacct.ledger.lines import CAUSAL_KERNEL, WINDOW, State
from tfacct.ledger.storage import StatePage, Width
from tfacct.ledger.workload import LARGEST, Workload
from tfacct.loading.model import LoadedModel
from tfacct.parallel.rank_memory import pool_facts

LayerKind = Literal["full", "window", "chunk", "state"]
MambaMode = Literal["none", "align", "all"]
"""States that prefix caching stores: none, one more for each request, or one for each block."""
BLOCK = 16
"""Tokens of a block by default."""
ALIGNMENT, LATENT_ALIGNMENT = 16, 64
"""Tokens that an attention block next to states is a multiple of; of latent attention."""
VALUE = 2
"""Bytes of an element in the dtype of a model in bf16."""


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(size: int, multiple: int) -> int:
    return ceil_div(size, multiple) * multiple


def aligned_block(state: int, token: int, alignment: int = ALIGNMENT) -> int:
    """Tokens of an attention block that is as large as a state.

    >>> aligned_block(state=2_146_304, token=4096), aligned_block(state=2_146_304, token=2048)
    (528, 1056)
    """
    return alignment * ceil_div(state, alignment * token)


class CacheLayers(NamedTuple):
    """Layers that cache alike: bytes of one token, or of a state, in one layer on one rank; keys of a window or
    chunk."""

    kind: LayerKind
    layers: int
    bytes: int
    window: int = 0


class Pages:
    """A pool of so many bytes in `blocks` of `block_size` tokens, which `layers_per_group` layers share, each with a
    page of `page_bytes`. Padding may fill the last group of a kind.

    `padding_ratio`: see the profiles of vLLM. `batched`: the most tokens of a step. `block`: tokens of a block, if they
    are given; next to states, they are a multiple of `alignment`. Raises UsageError for layers whose pages differ.

    A model of 32 layers whose tokens take 4 KiB in each:

    >>> found = Pages([CacheLayers("full", 32, 4096)], 58 << 30)
    >>> found.blocks, found.tokens, found.concurrency(8192)
    (29696, 475136, 58.0)
    """

    def __init__(
        self,
        layers: Sequence[CacheLayers],
        pool: int,
        *,
        padding_ratio: float = 1.0,
        batched: int = LARGEST,
        block: int | None = None,
        alignment: int = ALIGNMENT,
        mode: MambaMode = "none",
    ) -> None:
        token = max(one.bytes for one in layers if one.kind != "state")
        state = max((one.bytes for one in layers if one.kind == "state"), default=0)
        if any(one.bytes != (state if one.kind == "state" else token) for one in layers):
            raise UsageError("layers whose pages differ in size are not supported")
        most, least = (pick(one.layers for one in layers) for pick in (max, min))
        self.layers, self.batched, self.mode = layers, batched, mode
        self.block_size = max(block or BLOCK, aligned_block(state, token, alignment))
        self.page_bytes = max(token * self.block_size, state)
        self.layers_per_group = most if most < least * padding_ratio else least
        self.block_bytes = self.page_bytes * self.layers_per_group
        self.blocks = max(0, pool) // self.block_bytes
        self.group_counts = [ceil_div(one.layers, self.layers_per_group) for one in layers]
        self.tokens = self.blocks // sum(self.group_counts) * self.block_size

    def pages_of(self, layers: CacheLayers, length: int) -> int:
        """Pages of one group that a request of so many tokens takes."""
        match layers.kind:
            case "full":
                return ceil_div(length, self.block_size)
            case "window":
                return ceil_div(min(layers.window - 1 + self.batched, length), self.block_size) + 1
            case "chunk":
                return ceil_div(min(layers.window + self.batched, length), self.block_size)
            case "state":
                return {"none": 1, "align": 2, "all": ceil_div(length, self.block_size)}[self.mode]

    def per_request(self, length: int) -> int:
        """Blocks of a request of so many tokens."""
        both = zip(self.group_counts, self.layers, strict=True)
        return sum(count * self.pages_of(one, length) for count, one in both)

    def concurrency(self, length: int) -> float:
        """Requests of so many tokens at once."""
        return self.blocks / self.per_request(length)

    def requests(self, length: int) -> int:
        """Whole requests of so many tokens at once."""
        return int(self.concurrency(length))

    def largest_length(self, most: int) -> int:
        """The longest request, up to `most` tokens, that the blocks hold."""
        return largest_that_fits(self.per_request, self.blocks, most)


def alignment(model: LoadedModel, mode: MambaMode = "none") -> int:
    """Tokens that a block of a model with states is a multiple of."""
    tokens = LATENT_ALIGNMENT if model.architecture.having(LatentAttention) else ALIGNMENT
    chunks = (int(getattr(part, "chunk", 1)) for part in model.architecture.parts())
    return lcm(tokens, *chunks) if mode == "all" else tokens


def cache_layers(model: LoadedModel, cached: Width, value_bytes: int = VALUE, *, tp: int = 1) -> list[CacheLayers]:
    """Kinds of layers of a model, as one of `tp` ranks caches them. `cached`: how keys and values are stored;
    `value_bytes`: of the model's dtype, which a convolution's inputs have. Raises UsageError."""
    recurrent = _state_bytes(model, value_bytes)
    found: Counter[tuple[LayerKind, int, int]] = Counter()
    chunked = any(isinstance(part, Attention) and part.mask == "chunks" for part in model.architecture.attentions)
    for group in model.ledger.groups:
        growing = fixed = 0
        for line in (line for line in group.lines if isinstance(line, State)):
            elements = _elements(line, group, tp)
            if is_fixed(line):
                fixed += elements * (value_bytes if CAUSAL_KERNEL in axis_names(line.spec) else recurrent)
            elif any(axis in TOKENS - {"S"} for axis in axis_names(line.spec)):
                raise UsageError(f"{model.name}: pages of compressed or encoded tokens are not supported")
            else:
                growing += elements * cached.bits
        window = int(group.axes.get(WINDOW, 0))
        kind: LayerKind = "full" if not window else "chunk" if chunked else "window"
        found[kind, growing // 8, window] += int(group.count)
        found["state", fixed, 0] += int(group.count)
    return [CacheLayers(kind, layers, each, window) for (kind, each, window), layers in found.items() if each]


def _elements(line: State, group: Group, tp: int = 1) -> int:
    """Elements of one token of one sequence, or of a state of one, on a rank: of a convolution, the inputs of all taps
    but one. Ranks share the heads of keys and values, or have one alike, and a state; not a latent."""
    axes = axis_names(line.spec)
    at = {**group.axes, "B": 1, "S": 1}
    at |= {"K": ceil_div(int(at.get("K", 1)), tp), CAUSAL_KERNEL: int(at.get(CAUSAL_KERNEL, 1)) - 1}
    return int(size(at, axes)) // (1 if "S" in axes else tp)


def _state_bytes(model: LoadedModel, value_bytes: int) -> int:
    """Bytes of an element of a recurrent state: as the config says, 4 in some classes, else as the model's dtype."""
    named = str(model.raw.get("mamba_ssm_dtype", model.raw.get("mamba_ssm_cache_dtype", "")))
    return 4 if named.endswith("float32") or model.family in profile_of("vllm")["fp32_states"] else value_bytes


def hybrid_pages(model: LoadedModel, cached: Width, free: int) -> Pages:
    """Pages of `free` bytes of a model with states, as the newest vLLM has them. Raises UsageError."""
    newest = profile_of("vllm")
    how: Any = {"padding_ratio": newest["padding_ratio"], "mode": newest["mamba_cache_mode"]}
    return Pages(cache_layers(model, cached), free, block=cached.page, alignment=alignment(model), **how)


def aligned(model: LoadedModel, cached: Width) -> Width:
    """How a model stores its cache in pages: next to states, in pages of its attention blocks, each layer's states in
    one. Raises UsageError."""
    if not model.architecture.having(Mixer):
        return cached
    found = hybrid_pages(model, cached, 0)
    states = [(line, group) for group in model.ledger.groups for line in group.lines if isinstance(line, State)]
    fixed = [(line, group) for line, group in states if is_fixed(line)]
    convolutions = [_elements(line, group) * VALUE for line, group in fixed if CAUSAL_KERNEL in axis_names(line.spec)]
    taken = found.page_bytes if len(convolutions) == len(fixed) else max(convolutions, default=0)
    dtype = "fp32" if _state_bytes(model, VALUE) == 4 else "bf16"
    return replace(cached, page=found.block_size, state_page=StatePage(found.page_bytes, taken, dtype))


def hybrid_page_facts(model: LoadedModel, work: Workload, cached: Width, free: int | None) -> dict[str, Any]:
    """Pages of a model with states, whose attention blocks are as large as a state. With `free`, the bytes that the
    weights leave, also the blocks, tokens and requests of this context. Raises UsageError."""
    found = hybrid_pages(model, cached, free or 0)
    facts = {"kv_block": found.block_size, "kv_page_bytes": found.block_bytes}
    if free is None or not found.blocks:
        return facts
    needed, longest = found.per_request(work.context), found.largest_length(LARGEST)
    return facts | pool_facts(model, work, found.block_bytes, found.blocks, found.tokens, needed, longest)
