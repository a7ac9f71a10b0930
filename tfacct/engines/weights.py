"""Weights as vLLM stores them: tensors of the ledger joined as its layers join them, padded, as torch allocates them.

The layers' `create_weights`, `vocab_parallel_embedding.py`, `rotary_embedding/`, `mla_attention.py`; torch's
`CUDACachingAllocator.cpp`.
"""

from __future__ import annotations

from collections import Counter

from tfacct.architecture.parts import LatentAttention
from tfacct.engines.launch import WIDE, Launch
from tfacct.engines.pages import ceil_div, round_up
from tfacct.engines.profiles import MIB
from tfacct.ledger.evaluated import OUTSIDE, Tensor
from tfacct.loading.model import LoadedModel

JOINED = {
    **dict.fromkeys(("q_proj", "k_proj", "v_proj"), "qkv_proj"),
    **dict.fromkeys(("k_b_proj", "v_b_proj"), "kv_b_proj"),
    **dict.fromkeys(("gate_proj", "up_proj"), "gate_up_proj"),
}
"""Matrices of one module that the engine stores as one."""
SCALE = 4
"""Bytes of the scale of an output channel that the engine adds to a plain 8-bit weight."""


def allocated(size: int, split_limit: bool = False) -> int:
    """Bytes that torch's allocator counts for a tensor of `size` bytes.

    Sizes round up to 512 B. From 10 MiB on a segment is a multiple of 2 MiB, and a rest of at most 1 MiB stays with the
    tensor; under `split_limit` (max_split_size_mb:20) every rest of a tensor of 20 MiB or more stays.

    >>> allocated(100), allocated(20 * MIB + 512), allocated(20 * MIB + 512, split_limit=True) // MIB
    (512, 20972032, 22)
    """
    size = round_up(size, 512)
    if size < 10 * MIB:
        return size
    segment = round_up(size, 2 * MIB)
    stays = segment - size <= MIB or (split_limit and size >= 20 * MIB)
    return segment if stays else size


def weights(launch: Launch, rank: LoadedModel) -> dict[str, int]:
    """Bytes of the weights that one rank of a pipeline stage stores, those of image encoders too: parameters, cos/sin
    caches of rotary embeddings, W_UK and W_UV of latent attention, and the rest: padding, scales that the engine adds
    to narrow weights, and what the allocator rounds up. Raises TfacctError."""
    storage, value_bytes = launch.storage, launch.value_bytes
    split_limit = launch.profile["split_limit"]
    parameters, encoders = int(sum(rank.ledger.weight_bytes(storage).values())), 0
    joined: Counter[tuple[str, str, int, int]] = Counter()
    for tensor in rank.ledger.tensors():
        module, _, name = tensor.path.rpartition(".")
        holder, _, leaf = module.rpartition(".")
        stored = f"{holder}.{JOINED.get(leaf, leaf)}.{name}"
        for what, size in _bytes(launch, tensor).items():
            joined[stored, what, id(tensor.axes), tensor.count] += size
    total = sum(count * allocated(size, split_limit) for (*_, count), size in joined.items())
    if launch.images:
        encoders = sum(one.parameters for one in launch.model.of_parts("parameters")[1:]) * value_bytes
        encoders //= launch.flags.tp if launch.images["sharded"] else 1
    return {
        "parameters": parameters + encoders,
        "cos and sin": sum(allocated(size, split_limit) for size in rotary_caches(launch.model, value_bytes)),
        "W_UK and W_UV": sum(
            stack.count * allocated(part.heads * size * part.kv_rank * value_bytes, split_limit)
            for stack, part in rank.architecture.having(LatentAttention)
            for size in (part.nope_dim, part.value_dim)
        ),
        "padding" if storage.name in WIDE else "scales and padding": total - parameters,
    }


def _bytes(launch: Launch, tensor: Tensor) -> dict[str, int]:
    """Bytes of a tensor, a vocabulary padded, and of its scales and zero points, which are tensors of their own."""
    stored, storage = tensor.stored, launch.storage
    size = int(storage.bytes(stored))
    if tensor.path in OUTSIDE:
        padded = ceil_div(round_up(launch.vocabulary, launch.profile["vocabulary_rows"]), launch.flags.tp)
        return {"numbers": size // int(stored.outputs) * padded}
    if storage.format_of(stored) is None:
        return {"numbers": size}
    if not storage.scaled:
        return {"numbers": size, "scales": SCALE * int(stored.copies) * int(stored.outputs)}
    scales = size % max(1, int(stored.copies) * int(stored.elements) // 2)  # a number has 4 or 8 bits
    return {"numbers": size - scales, "scales": scales}


def rotary_caches(model: LoadedModel, value_bytes: int) -> list[int]:
    """Bytes of the cos/sin cache of each distinct rotary embedding; latent attention has it in fp32."""
    found: dict[str, int] = {}
    for part in model.architecture.attentions:
        if (rotary := part.rotary) is not None:
            dim = int(getattr(part, "head_dim", 0) if part.rope_dim is None else part.rope_dim)
            factor = float((rotary.scaling or {}).get("factor", 1)) if rotary.scaled in ("linear", "dynamic") else 1
            each = dim * (4 if isinstance(part, LatentAttention) else value_bytes)
            found[repr((rotary, dim))] = int(model.context * factor) * each
    return list(found.values())
