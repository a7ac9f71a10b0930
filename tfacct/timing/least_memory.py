"""Memory that every implementation of a training step needs: a step with less has no estimate of its time."""

from __future__ import annotations

from tfacct.ledger.einsum import AxisNames, size
from tfacct.ledger.groups import Ledger
from tfacct.ledger.lines import Matmul
from tfacct.timing.training_time import Trained, expert_parameters


def least_bytes(ledger: Ledger, trained: Trained) -> int:
    """Bytes that every implementation of a step needs on each device: weights, gradients and two states of AdamW in
    bf16, and saved activations, of a byte each if matmuls are narrower. Replicas shard at most the optimizer state;
    frozen weights have four bits."""
    experts = expert_parameters(ledger)
    sharded = trained.sharded(sum(ledger.parameters().values()) - experts, experts)
    weights = sum(each / (copies if trained.mesh.fsdp > 1 else 1) for each, copies in sharded)
    in_flight = min(trained.mesh.pp, trained.accumulate)
    activations = (2 if trained.dtype == "bf16" else 1) * least_saved(ledger, trained) * in_flight / trained.replica
    if trained.frozen:
        return int(weights / 2 + activations)
    gradients, states = 2 * weights, 2 * weights + 4 * sum(each / copies for each, copies in sharded)
    return int(states + (gradients + activations if trained.accumulate > 1 else max(gradients, activations)))


def least_saved(ledger: Ledger, trained: Trained) -> int:
    """Elements that every implementation saves for the backward pass of all layers: the results of matmuls.

    Attention scores stay within a fused kernel, and what is added to the residual stream is saved once a layer: norms,
    activations and rotary embeddings can be computed again from these. A recomputed layer saves its input alone.
    """
    at, total = trained.work.axes(), 0
    for group in (group for group in ledger.groups if group.numbers):
        axes = group.bound(at)
        products = [line.einsum for line in group.lines if isinstance(line, Matmul)]
        stream, results = products[0].left, list[AxisNames]()
        if trained.recompute != "full":
            results = [one.out for one in products if one.out != stream and not {"T", "S"} <= set(one.out)]
        total += int(group.count) * sum(int(size(axes, result)) for result in (stream, *results))
    return total
