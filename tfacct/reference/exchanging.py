"""Expert parallelism as in transformers: tokens go to their experts in an all-to-all.

Tensors without data have no token counts, so the ranks assume that tokens are routed evenly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from tfacct.base.errors import UsageError
from tfacct.base.spelling import option


def exchange(model: Any, ranks: Any, tp: int, fsdp: int, ep: int, *, apart: bool) -> set[nn.Parameter]:
    """Shards the experts of a model over `ep` of its ranks, `tp` of them per batch, and the weights of each expert over
    the other ranks that have it. `apart`: each rank of a batch has different tokens. Returns the weights that `fsdp`
    ignores.

    Raises UsageError for a class without an expert-parallel plan.
    """
    from transformers.distributed.configuration_utils import DistributedConfig
    from transformers.distributed.expert_parallel import apply_expert_parallelism

    _, plan, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=tp, fsdp_size=fsdp, ep_size=ep))
    if not plan:
        raise UsageError("the class has no expert-parallel plan", f"leave {option('ep')} out")
    copies = tp * fsdp // ep
    with unset_fake_temporarily():
        mesh = init_device_mesh("cpu", (copies, ep), mesh_dim_names=("copies", "ep"))
        if apart:
            ranks = init_device_mesh("cpu", (tp * fsdp, 1), mesh_dim_names=("others", "batch"))["batch"]
    apply_expert_parallelism(model, mesh["ep"], ranks, plan)
    every = [module for name, module in model.named_modules() if name.endswith("mlp.experts")]
    if copies == 1:
        return {weight for module in every for weight in module.parameters()}
    for module in every:
        fully_shard(module, mesh=mesh["copies"])
    return set()


@contextmanager
def evenly(ep: int) -> Iterator[None]:
    """Numbers of rows sent to each of `ep` ranks, from all rows of a rank, if the real counts are not known."""
    if ep == 1:
        yield
        return
    from transformers.distributed.expert_parallel import AllToAllEP

    tells: Any = FakeTensor.tolist
    dispatches: Any = AllToAllEP._dispatch_tokens
    rows: list[int] = []

    def dispatched(self: Any, hidden: Any, chosen: Any, weights: Any) -> Any:
        tokens = -(-chosen.size(0) // self.tp_mesh.size())  # the first rank's slice
        rows[:] = [tokens * chosen.size(-1)]
        return dispatches(self, hidden, chosen, weights)

    def listed(self: Any) -> Any:
        if self.shape != (2, ep):
            return tells(self)
        each, more = divmod(rows[0], ep)
        return [[each + (rank < more) for rank in range(ep)]] * 2

    with patch.object(AllToAllEP, "_dispatch_tokens", dispatched), patch.object(FakeTensor, "tolist", listed):
        yield
