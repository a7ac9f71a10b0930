"""What ranks send and receive in torch: pipeline stages, and context parallelism in a ring.

The process group sends nothing and the tensors have no data. Stages run torch's schedules; keys and values circulate in
torch's experimental context_parallel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from torch import distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, schedules

from tfacct.meta.model import DTYPES, config_of, maker
from tfacct.reference.ranks import blocks_of, fake_ranks, watching

KINDS = {"all_to_all_single": "send"}
"""The operation with which a ring sends its message."""
SINGLE: dict[str, Any] = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}


class _Agreed(PipelineStage):
    """A stage without real neighbors, with known shapes. It records what it sends forward: with two ranks, each is
    before and after the other, so the receiver of a message does not determine its pass."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ahead: dict[int, Any] = {}

    def get_fwd_send_ops(self, fwd_chunk_id: int) -> list[Any]:
        """As in torch, and recorded."""
        made = super().get_fwd_send_ops(fwd_chunk_id)
        self.ahead |= {id(one): one for one in made}
        return made

    def _warmup_backward_result(self, received_result: Any = None) -> Any:  # noqa: ARG002
        return torch.ones(1, dtype=torch.int32)


class _Stream(nn.Module):
    """What a stage does to the residual stream, as seen by its neighbors."""

    def __init__(self, width: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, device="meta", dtype=dtype))

    def forward(self, stream: Any) -> Any:
        """The residual stream plus a learned vector."""
        return stream + self.weight


class Heads(NamedTuple):
    """Query heads and key heads on one rank, and head size."""

    query: int
    keys: int
    width: int


def messages_sent(
    ranks: int, rank: int, chunks: int, microbatches: int, schedule: str, shape: Sequence[int], dtype: str
) -> Counter[tuple[str, int]]:
    """Messages that one pipeline rank sends in a step: pass and bytes → count. `shape`: that of the residual stream."""
    found: Counter[tuple[str, int]] = Counter()
    kind = DTYPES[dtype]

    def watched(operations: Sequence[Any], desc: str | None = None) -> list[Any]:  # noqa: ARG001
        for one in operations:
            if one.op is dist.isend:
                when = "forward" if any(id(one) in stage.ahead for stage in stages) else "backward"
                found[when, one.tensor.numel() * one.tensor.element_size()] += 1
        return []

    def stream(asks: bool) -> Any:
        return torch.zeros(*shape, requires_grad=asks, device="meta", dtype=kind)

    every = ranks * chunks
    with fake_ranks(ranks, rank), patch.object(schedules, "_batch_p2p", watched):
        stages = [
            _Agreed(
                _Stream(shape[-1], kind),
                stage,
                every,
                torch.device("meta"),
                (stream(asks=bool(stage)),),
                (stream(asks=True),),
            )
            for stage in range(rank, every, ranks)
        ]
        run: Any
        if schedule in SINGLE:
            run = SINGLE[schedule](stages[0], microbatches, loss_fn=_loss)
        else:
            run = ScheduleInterleaved1F1B(stages, microbatches, loss_fn=_loss)  # type: ignore[arg-type]
        inputs = (torch.zeros(microbatches * shape[0], *shape[1:], device="meta", dtype=kind),)
        target = torch.zeros(microbatches * shape[0], 1, device="meta")
        run.step(*(inputs if rank == 0 else ()), target=target if rank == ranks - 1 else None)
    return found


def _loss(made: Any, _: Any) -> Any:
    return made.sum()


def parameters_of_rank(
    config: Mapping[str, Any], every: Sequence[Sequence[range]], rank: int, auto: str
) -> dict[str, int]:
    """Elements of each parameter of the class on one rank. `every`: the layers of each rank's stages. Modules before
    the first layer are in the first stage, those after the layers in the last. `auto` builds the class."""
    made = config_of(config)
    with torch.device("meta"):
        model = maker(auto)(made, dtype=torch.bfloat16)  # experts support no other
    blocks = blocks_of(model)
    inside = next(name for name, module in model.named_modules() if module is blocks)
    known = {id(weight): name for name, weight in model.named_parameters()}
    ahead = _before(model, blocks[0])

    def here(name: str) -> bool:
        if not name.startswith(f"{inside}."):
            return rank == (0 if name.rpartition(".")[0] in ahead else len(every) - 1)
        number = int(name.removeprefix(f"{inside}.").split(".")[0])
        return any(number in stage for stage in every[rank])

    weights = model.named_parameters(remove_duplicate=False)
    return {known[id(weight)]: weight.numel() for name, weight in weights if here(name)}


def _before(model: Any, block: Any) -> set[str]:
    """Names of the modules that run before any layer, because some classes define modules in another order."""
    ran: list[str] = []
    ahead: set[str] = set()
    for name, module in model.named_modules():
        module.register_forward_pre_hook(lambda *_, name=name: ran.append(name))
    block.register_forward_pre_hook(lambda *_: ahead.update(ran))
    with torch.no_grad():
        model(input_ids=torch.zeros(1, 2, dtype=torch.long, device="meta"))
    return ahead


def ring(heads: Heads, blocks: int, ranks: int, batch: int, tokens: int, dtype: str) -> Counter[Any]:
    """Messages of attention in a ring of ranks, for a number of layers, forward and backward: pass, kind and bytes."""
    from torch.distributed.tensor.experimental._context_parallel import _attention as torchs

    found: Counter[Any] = Counter()
    torchs._cp_options.rotate_method = torchs._RotateMethod.ALL_TO_ALL

    def watched(when: str) -> Any:
        def counted(_: str, kind: str, size: int) -> None:
            found[when, kind, size] += blocks

        return watching(KINDS, counted)

    with fake_ranks(ranks), torch.no_grad():
        group: Any = dist.group.WORLD
        shapes = [(batch, count, tokens, heads.width) for count in (heads.query, heads.keys, heads.keys)]
        q, k, v = (torch.zeros(shape, device="meta", dtype=DTYPES[dtype]) for shape in shapes)
        with watched("forward"):
            out, logs = torchs._templated_ring_attention(group, 2, _kernel, q, k, v, is_causal=True)  # type: ignore[arg-type]
        with watched("backward"):
            slope = torch.ones_like(out)
            torchs._templated_ring_attention_backward(
                group,
                2,
                _gradients,  # type: ignore[arg-type]
                slope,
                "grad_out",
                q,
                k,
                v,
                out,
                logs,
                True,
            )
    return found


def _kernel(q: Any, k: Any, v: Any, is_causal: bool, **_: Any) -> Any:
    """CPU attention with the signature that torch's ring calls."""
    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, is_causal)


def _gradients(**given: Any) -> Any:
    names = ("grad_out", "query", "key", "value", "out", "logsumexp")
    run = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
    return run(*(given[name] for name in names), 0.0, given["is_causal"])
