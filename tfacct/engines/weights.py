"""Weights as vLLM stores them: tensors of the ledger joined as its layers join them, padded, as torch allocates them.

The layers' `create_weights`, `vocab_parallel_embedding.py`, `rotary_embedding/`, `mla_attention.py`; torch's
`CUDACachingAllocator.cpp`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from tfacct.architecture.parts import LatentAttention, Rotary
from tfacct.engines.launch import WIDE, Launch
from tfacct.engines.pages import ceil_div
from tfacct.engines.profiles import GIB, MIB
from tfacct.ledger.evaluated import OUTSIDE, Tensor
from tfacct.loading.model import LoadedModel

VOCABULARY = 64
"""Rows of the embedding and of the head are a multiple of it."""
JOINED = {
    **dict.fromkeys(("q_proj.weight", "k_proj.weight", "v_proj.weight"), "qkv_proj"),
    **dict.fromkeys(("k_b_proj.weight", "v_b_proj.weight"), "kv_b_proj"),
    **dict.fromkeys(("gate_proj.weight", "up_proj.weight"), "gate_up_proj"),
}
"""Tensors of one module that the engine stores as one."""
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
    latent attention; `total` with padding, scales that the engine adds to `narrow` weights, and what the allocator
    rounds up."""

    parameters: int
    rotary: int
    absorbed: int
    total: int
    narrow: bool

    @property
    def words(self) -> str:
        """What the total consists of, in GiB: parts from 0.005 GiB on."""
        padding = self.total - self.parameters - self.rotary - self.absorbed
        others = {
            "cos and sin": self.rotary,
            "W_UK and W_UV": self.absorbed,
            "scales and padding" if self.narrow else "padding": padding,
        }
        shown = {"parameters": self.parameters} | {what: size for what, size in others.items() if size >= GIB // 200}
        return ", ".join(f"{what} {size / GIB:.2f}" for what, size in shown.items())


def weights(launch: Launch, rank: LoadedModel) -> Weights:
    """The weights that one rank of a pipeline stage stores, those of image encoders too. Raises TfacctError."""
    tp, storage = launch.flags.tp, launch.storage
    split_limit = bool(launch.profile.facts.get("split_limit"))
    parameters = 0
    joined: dict[tuple[str, str, int, int], int] = defaultdict(int)
    for tensor in rank.ledger.tensors():
        parameters += int(storage.bytes(tensor.stored)) * int(tensor.count)
        module, _, name = tensor.path.rpartition(".")
        holder, _, leaf = module.rpartition(".")
        stored = f"{holder}.{JOINED.get(f'{leaf}.{name}', f'{leaf}.{name}')}"
        for what, size in _bytes(launch, tensor).items():
            joined[stored, what, id(tensor.axes), tensor.count] += size
    total = sum(count * allocated(size, split_limit) for (*_, count), size in joined.items())
    rotary = sum(allocated(size, split_limit) for size in rotary_caches(launch.model, launch.value_bytes))
    absorbed = sum(
        stack.count * allocated(part.heads * size * part.kv_rank * launch.value_bytes, split_limit)
        for stack, part in rank.architecture.having(LatentAttention)
        for size in (part.nope_dim, part.value_dim)
    )
    encoders = sum(one.parameters for one in launch.encoders) * launch.value_bytes
    encoders //= tp if launch.images.get("sharded") else 1
    total += rotary + absorbed + encoders
    return Weights(parameters + encoders, rotary, absorbed, total, storage.name not in WIDE)


def _bytes(launch: Launch, tensor: Tensor) -> dict[str, int]:
    """Bytes of a tensor, a vocabulary padded, and of its scales and zero points, which are tensors of their own."""
    stored, storage = tensor.stored, launch.storage
    size = int(storage.bytes(stored))
    if tensor.path in OUTSIDE:
        padded = ceil_div(ceil_div(launch.vocabulary, VOCABULARY) * VOCABULARY, launch.flags.tp)
        return {"numbers": size // int(stored.outputs) * padded}
    if storage.format_of(stored) is None:
        return {"numbers": size}
    if not storage.scaled:
        return {"numbers": size, "scales": SCALE * int(stored.copies) * int(stored.outputs)}
    scales = size % max(1, int(stored.copies) * int(stored.elements) // 2)  # a number has 4 or 8 bits
    return {"numbers": size - scales, "scales": scales}


def rotary_caches(model: LoadedModel, value_bytes: int) -> Iterator[int]:
    """Bytes of the cos/sin cache of each distinct rotary embedding; latent attention has it in fp32."""
    found: dict[str, int] = {}
    for part in model.architecture.attentions:
        if part.rotary is not None:
            dim = int(getattr(part, "head_dim", 0) if part.rope_dim is None else part.rope_dim)
            each = dim * (4 if isinstance(part, LatentAttention) else value_bytes)
            found[repr((part.rotary, dim))] = _positions(model.context, part.rotary) * each
    yield from found.values()


def _positions(positions: int, rotary: Rotary) -> int:
    """Positions of a cos/sin cache, of a model with a context of so many."""
    scaling, kind = rotary.scaling or {}, rotary.scaled
    factor = float(scaling.get("factor", 1))
    original = int(scaling.get("original_max_position_embeddings", positions))
    if kind in ("linear", "dynamic"):
        return int(positions * factor)
    if kind == "yarn":
        return int(original * factor)
    if kind in ("longrope", "su"):
        return original + positions
    return positions
