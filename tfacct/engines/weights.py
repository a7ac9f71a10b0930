"""Weights as vLLM stores them: tensors of the ledger joined as its layers join them, padded, as torch allocates them.

The layers' `create_weights`, `vocab_parallel_embedding.py`, `rotary_embedding/`, `mla_attention.py`; torch's
`CUDACachingAllocator.cpp`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tfacct.architecture.parts import DeltaNet, LatentAttention, Mamba2, Mixer, SelfAttention
from tfacct.engines.units import MIB, ceil_div
from tfacct.ledger.evaluated import OUTSIDE, Tensor
from tfacct.ledger.storage import Storage
from tfacct.loading.model import LoadedModel
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.shard_shapes import shard

VOCABULARY = 64
"""Rows of the embedding and of the head are a multiple of it."""
JOINED = {
    **dict.fromkeys(("q_proj.weight", "k_proj.weight", "v_proj.weight"), "qkv_proj"),
    **dict.fromkeys(("k_b_proj.weight", "v_b_proj.weight"), "kv_b_proj"),
    **dict.fromkeys(("gate_proj.weight", "up_proj.weight"), "gate_up_proj"),
}
"""Tensors of one module that the engine stores as one."""
MIXERS = {DeltaNet.name, Mamba2.name}
"""Names of the parts with states whose heads ranks share."""
SCALE = 4
"""Bytes of the scale of an output channel that the engine adds to a plain 8-bit weight."""


def allocated(size: int, split_limit: bool = False) -> int:
    """Bytes that torch's allocator counts for a tensor of `size` bytes.

    Sizes round up to 512 B. From 10 MiB on a segment is a multiple of 2 MiB, and a rest of at most 1 MiB stays with the
    tensor; under `split_limit` (max_split_size_mb:20) every rest of a tensor of 20 MiB or more stays.

    >>> allocated(100), allocated(11 * MIB - 10) // MIB, allocated(21 * MIB - 10) // 1024
    (512, 12, 22528)
    >>> allocated(20 * MIB + 512), allocated(20 * MIB + 512, split_limit=True) // MIB
    (20972032, 22)
    """
    size = ceil_div(size, 512) * 512
    if size < 10 * MIB:
        return size
    segment = ceil_div(size, 2 * MIB) * 2 * MIB
    stays = segment - size <= MIB or (split_limit and size >= 20 * MIB)
    return segment if stays else size


class Weights(NamedTuple):
    """Bytes of one rank's weights: `parameters` without padding, cos/sin caches of rotary embeddings, W_UK and W_UV of
    latent attention; `total` with padding and what the allocator adds."""

    parameters: int
    rotary: int
    absorbed: int
    total: int


def weights(rank: LoadedModel, whole: LoadedModel, tp: int, storage: Storage, dtype: int, split_limit: bool) -> Weights:
    """The weights of one rank. `rank`: the model as the rank has it, or, of a model with states, as it is; `dtype`:
    bytes of a value of the model's dtype."""
    states = bool(rank.architecture.having(Mixer))

    def on_rank(tensor: Tensor, size: int) -> int:
        """Bytes of a rank's part of a tensor of a model with states."""
        if not states or tp == 1 or tensor.path in OUTSIDE:
            return size
        divided = size * shard(tensor.parameter, tensor.axes, Mesh(tp)).elements // int(tensor.elements)
        return divided // tp if MIXERS.intersection(tensor.path.split(".")) else divided

    def plain(tensor: Tensor) -> int:
        size = on_rank(tensor, int(storage.bytes(tensor.stored)))
        return size // tp if states and tensor.path in OUTSIDE else size

    parameters = sum(plain(tensor) * int(tensor.count) for tensor in rank.ledger.tensors())
    joined: dict[tuple[str, int, int], int] = defaultdict(int)
    for tensor in rank.ledger.tensors():
        module, _, name = tensor.path.rpartition(".")
        holder, _, leaf = module.rpartition(".")
        stored = f"{holder}.{JOINED.get(f'{leaf}.{name}', f'{leaf}.{name}')}"
        joined[stored, id(tensor.axes), tensor.count] += on_rank(tensor, _bytes(tensor, whole, tp, storage))
    total = sum(count * allocated(size, split_limit) for (*_, count), size in joined.items())
    rotary = [allocated(size, split_limit) for size in rotary_caches(whole, dtype)]
    absorbed = [
        count * allocated(part.heads * size * part.kv_rank * dtype, split_limit)
        for stack, part in rank.architecture.having(LatentAttention)
        for count in [stack.count]
        for size in (part.nope_dim, part.value_dim)
    ]
    return Weights(parameters, sum(rotary), sum(absorbed), total + sum(rotary) + sum(absorbed))


def _bytes(tensor: Tensor, whole: LoadedModel, tp: int, storage: Storage) -> int:
    """Bytes of one tensor, a vocabulary padded and an 8-bit weight with its scales."""
    if tensor.path in OUTSIDE:
        rows = vocabulary(whole)
        padded = ceil_div(ceil_div(rows, VOCABULARY) * VOCABULARY, tp)
        return int(storage.bytes(tensor.stored)) // int(tensor.stored.outputs) * padded
    stored = tensor.stored
    size = int(storage.bytes(stored))
    if storage.scaled or storage.format_of(stored) is None:
        return size
    return size + SCALE * int(stored.copies) * int(stored.outputs)


def vocabulary(model: LoadedModel) -> int:
    """Rows of the head."""
    assert model.architecture.head is not None
    return int(model.architecture.head.vocab)


def rotary_caches(model: LoadedModel, dtype: int) -> Iterator[int]:
    """Bytes of the cos/sin cache of each distinct rotary embedding."""
    found = {}
    for part in model.architecture.attentions:
        if part.rotary is not None:
            found[repr((part.rotary, rotary_dim(part)))] = part
    for part in found.values():
        assert part.rotary is not None
        fp32 = isinstance(part, LatentAttention)
        yield _rows(model, part) * rotary_dim(part) * (4 if fp32 else dtype)


def rotary_dim(part: SelfAttention) -> int:
    """Dimensions of a head with rotary embedding."""
    return int(getattr(part, "head_dim", 0) if part.rope_dim is None else part.rope_dim)


def _rows(model: LoadedModel, part: SelfAttention) -> int:
    """Positions of a cos/sin cache."""
    assert part.rotary is not None
    scaling, positions = part.rotary.scaling or {}, model.context
    kind, factor = part.rotary.scaled, float(scaling.get("factor", 1))
    original = int(scaling.get("original_max_position_embeddings", positions))
    if kind in ("linear", "dynamic"):
        return int(positions * factor)
    if kind == "yarn":
        return int(original * factor)
    if kind in ("longrope", "su"):
        return original + positions
    return positions
