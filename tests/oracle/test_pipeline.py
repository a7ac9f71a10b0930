"""Pipeline parallelism: messages of torch's schedules, with fake collectives. Kind: oracle."""

from collections import Counter
from typing import Any

import pytest

import tfacct
from tests.helpers.lazy import lazy
from tests.helpers.rank_configs import SMALL
from tests.helpers.torch_stages import alone, schedule_of
from tfacct.ledger.workload import Workload
from tfacct.parallel.mesh import Mesh
from tfacct.parallel.pipeline import in_pipeline

reference = lazy("tfacct.reference.ranks")
torch, dist, schedules = lazy("torch"), lazy("torch.distributed"), lazy("torch.distributed.pipelining.schedules")


def sent_by_torch(mesh: Mesh, rank: int, batch: int, tokens: int, hidden: int) -> Counter[tuple[str, int]]:
    """What a rank sends in a step of torch's schedule: forward or backward, and the bytes of a message."""
    found: Counter[tuple[str, int]] = Counter()
    shape = batch // mesh.microbatches, tokens, hidden
    first, given, made = (torch.zeros(*shape, requires_grad=so) for so in (False, True, True))
    every = mesh.pp * mesh.chunks
    real = schedules._batch_p2p

    def watched(ops: Any, desc: Any = None) -> Any:
        for one in ops:
            if one.op is dist.isend:
                when = "forward" if one.peer == (rank + 1) % mesh.pp else "backward"
                found[when, one.tensor.numel() * one.tensor.element_size()] += 1
        return real(ops, desc)

    with reference.fake_ranks(mesh.pp, rank), pytest.MonkeyPatch.context() as patched:
        patched.setattr(schedules, "_batch_p2p", watched)
        layer, on = torch.nn.Linear(hidden, hidden), torch.device("cpu")
        own = [
            alone(layer, stage, every, on, (given if stage else first,), (made,))
            for stage in range(rank, every, mesh.pp)
        ]

        def loss(made: Any, _: Any) -> Any:
            return made.sum()

        schedule = schedule_of(mesh, own, loss)
        whole = (torch.zeros(batch, tokens, hidden),) if rank == 0 else ()
        schedule.step(*whole, target=torch.zeros(batch, 1) if rank == mesh.pp - 1 else None)
    return found


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "interleaved"])
@pytest.mark.parametrize("rank", [0, 1, 3])
def test_stages_send_what_torchs_schedules_send(schedule: Any, rank: int) -> None:
    mesh = Mesh(pp=4, schedule=schedule, microbatches=8, chunks=2 if schedule == "interleaved" else 1)
    ledger = tfacct.load(SMALL).loaded.ledger
    lines = in_pipeline(ledger, mesh, Workload(5, 5, 16).axes(), 32, train=True)[rank]
    counted = Counter({(one.when, one.bytes // one.calls): one.calls for one in lines if one.kind == "send"})
    assert counted == sent_by_torch(mesh, rank, 16, 5, SMALL["hidden_size"])
